"""The corpus of the tokenizer goldens: a seeded generator, so that only its seed lies in the repository.

src/text/golden_corpus.h holds the same generator in C++; both must change together.
"""
import pathlib
import re

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1
LINES = 10_000
SEED = 20240611
# Characters drawn at random; blocks without gaps and settled long ago, so that no Unicode version matters.
RANGES = [(0x21, 0x7E), (0xA1, 0xFF), (0x100, 0x17F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA),
          (0x627, 0x63A), (0x905, 0x939), (0x966, 0x96F), (0xE01, 0xE30), (0x2010, 0x2027), (0x2190, 0x21FF),
          (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFF01, 0xFF5E),
          (0x1F300, 0x1F320), (0x1F600, 0x1F64F), (0x1D400, 0x1D454)]


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Random:
    """base/random.h's Random."""

    def __init__(self, seed):
        self.seed, self.counter = splitmix64(seed), 0

    def below(self, bound):
        draw = splitmix64(self.seed ^ splitmix64((self.counter + 0xD1B54A32D192ED03) & MASK))
        self.counter += 1
        return draw % bound


def samples():
    escapes = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}

    def unescape(match):
        body = match.group(1)
        return chr(int(body[1:], 16)) if body[0] == "u" else escapes[body]

    text = (HERE / "samples.txt").read_text(encoding="utf-8")
    return [re.sub(r"\\(u[0-9a-f]{4}|[nrt\\])", unescape, line) for line in text.split("\n")[:-1]]


def lines():
    pieces = samples()
    random = Random(SEED)
    for _ in range(LINES):
        line = ""
        for _ in range(1 + random.below(12)):
            kind = random.below(8)
            if kind == 0:
                low, high = RANGES[random.below(len(RANGES))]
                for _ in range(1 + random.below(6)):
                    line += chr(low + random.below(high - low + 1))
            else:
                line += pieces[random.below(len(pieces))]
            if random.below(2) == 0:
                line += " "
        yield line


def run_lines():
    """Long runs of one kind, on which slow splitters fail: the ids must still be those of a plain one."""
    for unit in ["Z", "\u4f60", "\n", ".", "\U0001f642", " ", "\t", "7", "e\u0301", "\r\n", " \n", "'s", "a ", "-=", "\u00df"]:
        yield unit * 2000
        yield unit * 500 + "x"
        yield "x" + unit * 500 + " y"


def hash_ids(value, ids):
    """FNV-1a over the ids as 32-bit numbers, least byte first, and a closing 0xFFFFFFFF."""
    for number in list(ids) + [0xFFFFFFFF]:
        for shift in (0, 8, 16, 24):
            value = ((value ^ (number >> shift & 0xFF)) * 0x100000001B3) & MASK
    return value


def golden(encode):
    """One hash per hundred lines, and one for the runs."""
    out, value = [], 0xCBF29CE484222325
    for i, line in enumerate(lines()):
        value = hash_ids(value, encode(line))
        if i % 100 == 99:
            out.append(f"{value:016x}")
            value = 0xCBF29CE484222325
    for line in run_lines():
        value = hash_ids(value, encode(line))
    return "\n".join(out + [f"{value:016x}"]) + "\n"

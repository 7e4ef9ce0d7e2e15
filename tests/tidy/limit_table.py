"""Reads docs/limits.md and looks up what it names: constants with their values, and tests. No dependencies."""

import re
from dataclasses import dataclass

DOCUMENT = "docs/limits.md"
COLUMNS = 6  # limit, file, value, what it bounds, what is told, tests
INTERNAL_COLUMNS = 3  # name, file, reason
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# What expressions of our sources may name. Times count in seconds.
KNOWN = {"kMiB": 1 << 20, "kNsPerSecond": 1, "kNsPerMs": 0.001, "INT32_MAX": (1 << 31) - 1}
MAXIMUM = re.compile(r"\bconstexpr\b[^;={}()]*\b(k[A-Z]\w*Max)\b\s*=")
OPTION_STRUCT = re.compile(r"\bstruct (\w+(?:Limits|Options)) \{(.*?)^\s*\};", re.S | re.M)
OPTION_MAXIMUM = re.compile(r"\b(\w+_max)\s*=\s*([^;]+);")


@dataclass
class Row:
    line: int
    cells: list

    def name(self):
        return self.cells[0].strip("`")

    def file(self):
        return self.cells[1].strip("`")


def rows(text):
    """The rows of the table of limits and of the table of internal names, without their heads."""
    tables, inside = ([], []), 0
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"## Internal\b", line):
            inside = 1
        elif line.startswith("|") and not re.match(r"\|(-+\|)+$|\| (limit|name) \|", line):
            tables[inside].append(Row(number, [cell.strip() for cell in line.strip().strip("|").split(" | ")]))
    return tables


def stated(value):
    """The numbers of a value cell: "64 KiB" is [65536], "0 to 65,535" is [0, 65535], "10 s" is [10]."""
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?)(?:\s*(KiB|MiB|GiB))?", value)
    return [float(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in found]


def evaluate(expression):
    """A constant expression of C++ or Rust as a number; None for what is not one."""
    plain = re.sub(r"//.*", "", expression).strip()
    plain = re.sub(r"\b\w+_t\{(\w+)\}", r"\1", plain)                      # size_t{64}
    plain = re.sub(r"(?<=\d)['_](?=\d)", "", plain)                         # 1'000, 1_000
    plain = re.sub(r"\b(\d+(?:\.\d+)?(?:e\d+)?)[uUlL]*\b", r"\1", plain)    # 1ull
    plain = re.sub(r"\bk?[A-Za-z]\w*", lambda match: str(KNOWN.get(match.group(), match.group())), plain)
    if not re.fullmatch(r"(?:[\d.\s+*()-]|<<|\de\d)+", plain):
        return None
    try:
        return float(eval(plain, {"__builtins__": {}}))  # digits and operators only
    except (SyntaxError, TypeError, ValueError):
        return None


def found_in(text, name):
    """The values that `text` gives to a limit of the table: kName or NAME, Struct::member, --flag; empty when none."""
    if name.startswith("--"):
        spec = re.search(r'OptionSpec\{"' + re.escape(name[2:]) + r'",(.*?)\},?\n', text, re.S)
        numbers = re.findall(r'",\s*([^",{}]+),\s*([^",{}]+?)(?:,|$)', spec.group(1), re.S) if spec else []
        return [evaluate(number) for number in numbers[-1]] if numbers else []
    member = name
    if "::" in name:
        outer, member = name.split("::")
        body = re.search(r"\b(?:struct|class) " + outer + r"\b[^;{]*\{(.*?)^\};", text, re.S | re.M)
        text = body.group(1) if body else ""
    match = re.search(r"\b" + re.escape(member) + r"\b(?::[^=;]*)?\s*=\s*([^;,]+?)\s*[;,)]", re.sub(r"//[^\n]*", "", text))
    return [evaluate(match.group(1))] if match else []


def has_test(text, file, test):
    if file.endswith(".py"):
        suite, _, case = test.partition(".")
        return f"class {suite}(" in text and f"def {case}(" in text
    suite, _, case = test.partition(".")
    return re.search(r"\bTEST(?:_F|_P)?\(\s*" + re.escape(suite) + r"\s*,\s*" + re.escape(case) + r"\s*\)", text)


def tests_of(cell):
    """(file, test) of a cell such as `src/a_test.cc`: `Suite.Case`, `Suite.Other`."""
    file, found = "", []
    for word in re.findall(r"`([^`]+)`", cell):
        if "/" in word:
            file = word
        else:
            found.append((file, word))
    return found


def maxima(text):
    """(line, name) of every maximum that a source declares, with its struct where it is a member."""
    for match in MAXIMUM.finditer(text):
        yield 1 + text.count("\n", 0, match.start(1)), match.group(1)
    for struct in OPTION_STRUCT.finditer(text):
        for member in OPTION_MAXIMUM.finditer(struct.group(2)):
            if evaluate(member.group(2)) != 0:  # 0: the owner sets it
                yield 1 + text.count("\n", 0, struct.start(2) + member.start()), f"{struct.group(1)}::{member.group(1)}"

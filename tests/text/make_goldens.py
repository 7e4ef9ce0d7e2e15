"""Writes goldens/*.txt: hashes of the ids that the reference libraries give for the corpus.

    python make_goldens.py WORK_FOLDER [--gguf SMOLLM2.gguf] [--gemma GEMMA3.gguf] [--originals FOLDER]

WORK_FOLDER holds tiny_sp.model (make_fixtures.py). FOLDER holds NAME/tokenizer.json as the models' authors published
them; the vocabularies stay outside the repository, only hashes enter it. Needs tokenizers, sentencepiece, gguf.
"""
import argparse
import json
import pathlib
import struct

import corpus
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
# The letters of deepseek-llm's published pattern: the cased letters of an older Unicode version.
LETTERS = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
           "\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ\u1fd0-\u1fd3\u1fd6-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
           "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
HAN = "[一-龥ࠀ-一가-\ud7ff]+"
LOWER, UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SPLITS = {
    "smollm": [r"\p{N}", GPT2],
    "refact": [r"\p{N}", GPT2],
    "tekken": [rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
               r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt-2": [GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", HAN, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
}


def byte_level(tokens, types, merges, pre):
    """The tokenizers library over the arrays of a GGUF file."""
    vocab = {}
    for i, token in enumerate(tokens):
        vocab.setdefault(token, i)
    pairs = [tuple(m.split(" ", 1)) for m in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre in ("llama-bpe", "tekken")))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in SPLITS[pre]]
    if pre == "smollm":  # as SmolLM2's own file says it
        splits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types):
        if kind in (2, 3):
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == 4:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
    return lambda line: tokenizer.encode(line, add_special_tokens=False).ids


def gguf_arrays(path):
    import gguf
    reader = gguf.GGUFReader(path)

    def strings(name):
        field = reader.fields[name]
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]

    kinds = reader.fields["tokenizer.ggml.token_type"]
    types = [int(kinds.parts[i][0]) for i in kinds.data]
    return strings("tokenizer.ggml.tokens"), types, strings("tokenizer.ggml.merges")


def scored_pieces(path):
    """sentencepiece itself over the pieces of a GGUF file, written as the protocol buffer that it reads (sentencepiece_model.proto)."""
    import gguf
    fields = gguf.GGUFReader(path).fields

    def value(name, default=None):
        key = f"tokenizer.ggml.{name}"
        return fields[key].contents() if key in fields else default

    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])

    def number(field, n):
        return varint(field << 3) + varint(n)

    def blob(field, data):
        return varint(field << 3 | 2) + varint(len(data)) + data

    def real(field, x):
        return varint(field << 3 | 5) + struct.pack("<f", x)

    pieces = zip(value("tokens"), value("scores"), value("token_type"))
    # Converters write the blanks of user-defined pieces as they stand in a text.
    pieces = [(t.replace(" ", "\u2581") if kind == 4 else t, score, kind) for t, score, kind in pieces]
    model = b"".join(blob(1, blob(1, t.encode()) + real(2, score) + number(3, kind)) for t, score, kind in pieces)
    special = [number(f, value(f"{n}_token_id")) for f, n in ((40, "unknown"), (41, "bos"), (42, "eos"), (43, "padding"))]
    trainer = number(3, 2) + number(35, 1) + b"".join(special)  # pairs, with bytes for what is unknown
    normalizer = blob(1, b"identity") + number(3, int(value("add_space_prefix", True))) + number(4, 0) + number(5, 1)
    return sentencepiece.SentencePieceProcessor(model_proto=model + blob(2, trainer) + blob(3, normalizer))


def write(name, encode):
    (HERE / "goldens" / f"{name}.txt").write_text(corpus.golden(encode))
    print(name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--gguf")
    parser.add_argument("--gemma")
    parser.add_argument("--originals", type=pathlib.Path)
    options = parser.parse_args()
    tiny = json.loads((HERE / "fixtures/tiny_bpe.json").read_text(encoding="utf-8"))
    for pre in SPLITS:
        write(f"tiny_bpe.{pre}", byte_level(tiny["tokens"], tiny["types"], tiny["merges"], pre))
    sp = sentencepiece.SentencePieceProcessor(model_file=str(options.work / "tiny_sp.model"))
    write("tiny_sp", sp.encode)
    if options.gguf:
        write("smollm2", byte_level(*gguf_arrays(options.gguf), "smollm"))
    if options.gemma:
        write("gemma3", scored_pieces(options.gemma).encode)
    for folder in sorted(options.originals.iterdir()) if options.originals else []:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        write(f"original.{folder.name}", lambda line: tokenizer.encode(line, add_special_tokens=False).ids)


if __name__ == "__main__":
    main()

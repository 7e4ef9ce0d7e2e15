"""Trains the two small vocabularies of the tests: fixtures/tiny_bpe.json, fixtures/tiny_sp.json and the reference
models beside the folder given. Needs tokenizers and sentencepiece. Run once; the results are checked in.

    python make_fixtures.py WORK_FOLDER
"""
import io
import json
import pathlib
import sys

import corpus
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent


def training_lines():
    return [line.replace("\0", "") for line in list(corpus.lines())[:1500]]


def tiny_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_lines(), trainer)
    tokenizer.add_tokens(["<tool_call>"])
    document = json.loads(tokenizer.to_str())
    count = tokenizer.get_vocab_size()
    types = [3 if i < len(special) else 1 for i in range(count)]
    types[tokenizer.token_to_id("<tool_call>")] = 4
    merges = [" ".join(m) if isinstance(m, list) else m for m in document["model"]["merges"]]
    return {"model": "gpt2", "pre": "smollm", "bos": 1, "eos": 2, "add_bos": False,
            "tokens": [tokenizer.id_to_token(i) for i in range(count)], "types": types, "scores": [], "merges": merges}


def tiny_sp(work):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()), model_writer=model, model_type="bpe", vocab_size=900,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, split_digits=True, allow_whitespace_only_pieces=True, user_defined_symbols=["<tool_call>"],
        max_sentence_length=100000, num_threads=1)
    (work / "tiny_sp.model").write_bytes(model.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = sp.vocab_size()

    def kind(i):
        if sp.is_unknown(i):
            return 2
        if sp.is_control(i):
            return 3
        if sp.is_byte(i):
            return 6
        return 4 if sp.id_to_piece(i) == "<tool_call>" else 1

    return {"model": "llama", "pre": "default", "bos": sp.bos_id(), "eos": sp.eos_id(), "unk": sp.unk_id(), "add_bos": True,
            "tokens": [sp.id_to_piece(i) for i in range(count)], "types": [kind(i) for i in range(count)],
            "scores": [sp.get_score(i) for i in range(count)], "merges": []}


def main():
    work = pathlib.Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    for name, vocabulary in (("tiny_bpe", tiny_bpe()), ("tiny_sp", tiny_sp(work))):
        with open(HERE / "fixtures" / f"{name}.json", "w", encoding="utf-8") as out:
            json.dump(vocabulary, out, ensure_ascii=False, indent=None, separators=(",", ":"))
            out.write("\n")


if __name__ == "__main__":
    main()

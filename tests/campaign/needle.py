#!/usr/bin/env python3
"""Long context: is what stands far back in a text found, and ranked as the fp32 oracle ranks it?

  needle.py MODEL.gguf --dump-logits build/release/headrace_logits [--tokens 4096 ...] [--questions 8] [--json OUT.json]

A haystack of about so many tokens is made of the public-domain text of benchmarks/quality, its paragraphs shuffled and repeated as needed, with a needle
"The secret number of CITY is DIGITS." at eight depths. Each question is a sequence of its own: the haystack, "The secret number of CITY is", and the right
answer's tokens but for the last; the logits behind the question and behind each of those tokens are compared, ours with the oracle's on the same ids. Both
compute the haystack once and go on from there.

Exit status 1: with int16 KV the right token's rank is none that the oracle's logits allow, give or take --tie (what quantised activations move the
difference of two logits by), or two of the oracle's first six stand in another order although they lie more than --tie apart. Swaps of what lies nearer
are counted and shown.
Needs tests/oracle/requirements.txt. Memory: the model in float32 and 40 KB a token of KV; only the last positions' logits are made.
"""
import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import llama_fp32  # noqa: E402  (the oracle lives with the tests)

CITIES = ("Paris", "Cairo", "Lima", "Oslo", "Delhi", "Tokyo", "Sydney", "Boston")
NEEDLE = "The secret number of {} is"
TOP = 5
BLOCK = 256  # tokens that the oracle takes at once


class Words:
    """The engine's tokenizer of one model, with the BOS that the model wants."""

    def __init__(self, program, model, meta):
        self.command = [program, model, "--tokenize"]
        adds_bos = meta.get("tokenizer.ggml.add_bos_token", meta.get("tokenizer.ggml.model") == "llama")
        self.head = [meta.get("tokenizer.ggml.bos_token_id")] if adds_bos else []

    def ids(self, text):
        done = subprocess.run(self.command, input=text.encode(), capture_output=True, check=True)
        return self.head + np.frombuffer(done.stdout, dtype="<i4").tolist()


def haystack(words, tokens, numbers):
    """Text of about `tokens` tokens, its end left to a question, with the needles at even depths."""
    with open(os.path.join(ROOT, "benchmarks", "quality", "text.txt"), encoding="utf-8") as f:
        source = [p for p in f.read().split("\n\n") if p.strip()]
    order, paragraphs = random.Random(tokens), []
    rate = len(words.ids("\n\n".join(source))) / len("\n\n".join(source))
    needles = [f"{NEEDLE.format(city)} {number}." for city, number in numbers.items()]
    wanted = (tokens - 40) / rate - sum(map(len, needles))
    while sum(len(p) + 2 for p in paragraphs) < wanted:
        fresh = source[:]
        order.shuffle(fresh)
        paragraphs += fresh
    while len(paragraphs) > 1 and sum(len(p) + 2 for p in paragraphs) > wanted:
        paragraphs.pop()
    for i, needle in reversed(list(enumerate(needles))):
        paragraphs.insert(int((i + 0.5) / len(needles) * len(paragraphs)), needle)
    return "\n\n".join(paragraphs) + "\n\n"


def questions(words, text, numbers, count):
    """[(city, ids of a window, ids of its answer)]: all windows begin with the haystack's ids."""
    hay, out = words.ids(text), []
    for city, number in list(numbers.items())[::max(1, len(numbers) // count)][:count]:
        asked, whole = words.ids(text + NEEDLE.format(city)), words.ids(f"{text}{NEEDLE.format(city)} {number}")
        if asked[:len(hay)] != hay or whole[:len(asked)] != asked:
            raise ValueError("the tokenizer merges across the question's borders: choose other words")
        out.append((city, whole[:-1], whole[len(asked):]))
    return hay, out


def kept_rows(args, model, hay, asked):
    """oracle_rows(), computed once and kept on disk by the model's and the ids' hash: whole or not there (written aside, then renamed)."""
    with open(args.model, "rb") as f:
        key = hashlib.file_digest(f, "sha256")
    for _, ids, _ in asked:
        key.update(np.array(ids, "<i4").tobytes())
    path = os.path.join(args.cache, f"needle-{key.hexdigest()[:24]}.npz")
    if not os.path.exists(path):
        os.makedirs(args.cache, exist_ok=True)
        np.savez(path + ".part.npz", *oracle_rows(model, hay, asked))
        os.replace(path + ".part.npz", path)
    with np.load(path) as rows:
        return [rows[f"arr_{i}"] for i in range(len(asked))]


def oracle_rows(model, hay, asked):
    """By question [answer, V]: the haystack is computed once, each question goes on from there."""
    model.reset()
    for at in range(0, len(hay), BLOCK):
        model.append(np.array(hay[at:at + BLOCK]))
    rows = []
    for _, ids, answer in asked:
        model.cut(len(hay))
        rows.append(model.append(np.array(ids[len(hay):]))[-len(answer):] @ model.head.T * model.logit_scale)
    return rows


def engine_rows(args, asked, vocabulary, extra):
    longest = max(len(answer) for _, _, answer in asked)
    context = max(len(ids) for _, ids, _ in asked) + 64
    command = [args.dump_logits, args.model, "--threads", str(args.threads), "--context", str(context), "--last", str(longest), "--keep-prefix", "1"] + extra
    rows, process = [], subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        for _, ids, answer in asked:
            process.stdin.write(len(ids).to_bytes(4, "little") + np.array(ids, "<i4").tobytes())
            process.stdin.flush()
            data = process.stdout.read(4 * longest * vocabulary)
            if len(data) < 4 * longest * vocabulary:
                raise ValueError(f"{args.dump_logits} ended early")
            rows.append(np.frombuffer(data, dtype="<f4").reshape(longest, vocabulary)[-len(answer):])
        process.stdin.close()
    return rows


def compare(truth, ours, right, tie):
    """One position."""
    first, theirs = np.argsort(-truth, kind="stable")[:TOP + 1], np.argsort(-ours, kind="stable")[:TOP]
    gaps = -np.diff(truth[first])
    swapped = [float(truth[a] - truth[b]) for i, a in enumerate(first) for b in first[i + 1:] if ours[a] < ours[b]]
    return {"rank_oracle": int((truth > truth[right]).sum()) + 1, "rank": int((ours > ours[right]).sum()) + 1,
            "rank_holds": bool((truth > truth[right] + tie).sum() <= (ours > ours[right]).sum() < (truth > truth[right] - tie).sum()),
            "same_first": bool(first[0] == theirs[0]), "same_order": first[:TOP].tolist() == theirs.tolist(),
            "same_set": set(first[:TOP].tolist()) == set(theirs.tolist()), "least_gap": float(gaps.min()), "widest_swap": max(swapped, default=0.0),
            "decided": not any(gap > tie for gap in swapped), "top_oracle": first[:TOP].tolist(), "top": theirs.tolist(),
            "logit_error": float(np.abs((truth - truth.max()) - (ours - ours.max()))[first].max())}


def report(tokens, name, asked, positions, tie):
    flat = [p for question in positions for p in question]
    count = lambda key: sum(p[key] for p in flat)  # noqa: E731
    print(f"{tokens} tokens, {name}: {len(flat)} positions of {len(asked)} questions: right token's rank equal {sum(p['rank'] == p['rank_oracle'] for p in flat)}, "
          f"first equal {count('same_first')}, first {TOP} the same set {count('same_set')}, in the same order {count('same_order')}; "
          f"swapped pairs lie at most {max(p['widest_swap'] for p in flat):.3f} apart (a tie is {tie}); "
          f"largest error among the first {TOP + 1}: {max(p['logit_error'] for p in flat):.3f}")
    for (city, ids, answer), question in zip(asked, positions):
        ranks = " ".join(f"{p['rank_oracle']}/{p['rank']}" for p in question)
        order = " ".join("=" if p["same_order"] else f"~{p['widest_swap']:.3f}" for p in question)
        print(f"  {city:8} {len(ids)} ids; rank of the right token, oracle/ours: {ranks}; order of the first {TOP}: {order}", flush=True)
    return all(p["rank_holds"] and p["decided"] for p in flat)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--dump-logits", required=True, help="our headrace_logits")
    p.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384])
    p.add_argument("--questions", type=int, default=len(CITIES))
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--tie", type=float, default=0.25)
    p.add_argument("--cache", default=os.path.join(ROOT, "build", "campaign"), help="where the oracle's rows are kept")
    p.add_argument("--json")
    args = p.parse_args()
    model, ok, result = llama_fp32.Llama(args.model), True, {}
    words, digits = Words(args.dump_logits, args.model, model.meta), random.Random(7)
    numbers = {city: digits.randint(1000, 9999) for city in CITIES}
    for tokens in args.tokens:
        hay, asked = questions(words, haystack(words, tokens, numbers), numbers, args.questions)
        began = time.time()
        truth = kept_rows(args, model, hay, asked)
        print(f"{tokens} tokens: the haystack has {len(hay)}; the oracle took {time.time() - began:.0f} s", flush=True)
        for name, extra in (("int16 KV", []), ("int8 KV", ["--kv-type", "int8"])):
            began = time.time()
            ours = engine_rows(args, asked, model.vocabulary, extra)
            positions = [[compare(t, o, right, args.tie) for t, o, right in zip(a, b, answer)] for a, b, (_, _, answer) in zip(truth, ours, asked)]
            held = report(tokens, name, asked, positions, args.tie)
            print(f"  took {time.time() - began:.0f} s", flush=True)
            ok = ok and (held or name == "int8 KV")
            result[f"{tokens} {name}"] = {city: question for (city, _, _), question in zip(asked, positions)}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    print("ok" if ok else "the ranking is NOT the oracle's")
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as e:
        sys.exit(f"needle: {e}")

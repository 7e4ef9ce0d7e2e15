#!/usr/bin/env python3
"""Measures how near an engine's logits are to fp32 on a real text: KL(fp32 || engine) over the whole vocabulary and top-1 agreement, ours beside llama.cpp's.

  quality.py --model GGUF --json OUT.json --dump-logits build/release/headrace_logits --llama-lib FOLDER
  quality.py --model GGUF --json OUT.json --llama-lib FOLDER          llama.cpp alone against the oracle

Needs the packages of requirements.txt beside it. Any GGUF file that the oracle knows. The text is cut into windows, each a fresh sequence, with a BOS where
the model wants one. The oracle's logits are kept under --cache (0.8 GB for 4096 positions of a 49,152-word vocabulary, 4.3 GB for Gemma's 262,144), one file
a window, so a broken run goes on where it stopped and the next engine pays only for itself. Ours runs twice, with int16 and with int8 KV.
An engine is a program: it reads [int32 count][count int32 ids] a window and writes count * V float32 for it. Memory: about 1 GB beside the engine's own.
OUT.json gets the figures, OUT.md the tables. Exit status: 0, or 1 where ours is compared and a loss above 1 % is not excluded, or where int8 KV costs more
than 0.3 % of perplexity.
"""
import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys

import gguf
import numpy as np

import divergence

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import llama_fp32  # noqa: E402  (the oracle lives with the tests)

INT8 = "headrace, int8 KV"
INT8_LOSS_ALLOWED = 0.003  # of perplexity, against our own int16 KV


def ids_of(args):
    """The text's ids without BOS. Ours and llama.cpp's tokenizers must agree where both are there: the figures are of the same ids."""
    found = {}
    for name, command in tokenizers_of(args):
        with open(args.text, "rb") as text:
            done = subprocess.run(command, stdin=text, capture_output=True, check=False)
        if done.returncode:
            raise ValueError(f"{name} cannot tokenise: {done.stderr.decode(errors='replace').strip()}")
        found[name] = np.frombuffer(done.stdout, dtype="<i4")
    if not found:
        raise ValueError("give --dump-logits or --llama-lib: one of them tokenises")
    first, *others = found.values()
    if any(not np.array_equal(first, other) for other in others):
        raise ValueError(f"the tokenizers of {' and '.join(found)} differ on {args.text}: the first is wrong, or the second")
    return first


def tokenizers_of(args):
    if args.dump_logits:
        yield "headrace", [args.dump_logits, args.model, "--tokenize"]
    if args.llama_lib:
        yield "llama.cpp", [sys.executable, os.path.join(HERE, "llamacpp_logits.py"), args.model, "--lib", args.llama_lib, "--tokenize"]


def windows_of(args):
    """[(ids, targets)]: consecutive windows of the text's tokens; a target is the token that follows in the text.

    Where the model wants a BOS each window begins with one: a Gemma without it predicts nothing. The BOS is a position, too: of the text's next token.
    """
    meta, ids = llama_fp32.Metadata(gguf.GGUFReader(args.model)), ids_of(args)
    adds_bos = meta.get("tokenizer.ggml.add_bos_token", meta.get("tokenizer.ggml.model") == "llama")
    head = np.array([meta.get("tokenizer.ggml.bos_token_id")] if adds_bos else [], dtype="<i4")
    windows, at = [], 0
    for first in range(0, args.positions, args.window):
        count = min(args.window, args.positions - first) - len(head)
        windows.append((np.concatenate([head, ids[at:at + count]]), ids[at + 1 - len(head):at + 1 + count]))
        at += count
    if at >= len(ids):
        raise ValueError(f"{args.text} has {len(ids)} tokens, --positions {args.positions} needs {at + 1}: give a longer text")
    return windows


class Oracle:
    """fp32 logits by window, computed once and kept on disk. Invariant: a file that is there is whole (written aside, then renamed)."""

    def __init__(self, model, cache):
        self.model, self.loaded, self.cache = model, None, cache
        with open(model, "rb") as f:
            self.key = hashlib.file_digest(f, "sha256").hexdigest()
        os.makedirs(cache, exist_ok=True)

    def path(self, ids):
        return os.path.join(self.cache, f"fp32-{hashlib.sha256(self.key.encode() + ids.tobytes()).hexdigest()[:24]}.npy")

    def compute(self, windows):
        for n, (ids, _) in enumerate(windows):
            if not os.path.exists(self.path(ids)):
                self.loaded = self.loaded or llama_fp32.Llama(self.model)
                np.save(self.path(ids) + ".part.npy", self.loaded.logits(ids))
                os.replace(self.path(ids) + ".part.npy", self.path(ids))
                print(f"oracle: window {n + 1} of {len(windows)}", file=sys.stderr, flush=True)
        self.loaded = None  # half a gigabyte that the engines can use

    def logits(self, ids):
        return np.load(self.path(ids), mmap_mode="r")


class Engine:
    """A running logits program. One thread; leave the `with` block to end it."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, command, log

    def __enter__(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def logits(self, ids, vocabulary):
        size = 4 * len(ids) * vocabulary
        try:
            self.process.stdin.write(len(ids).to_bytes(4, "little") + ids.tobytes())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise ValueError(f"{self.name} wrote {len(data)} of {size} bytes and ended: {self.about() or 'no message'} ({self.log})")
        return np.frombuffer(data, dtype="<f4").reshape(len(ids), vocabulary)

    def about(self):
        with open(self.log) as f:
            return f.readline().strip()


def measure(engine, oracle, windows):
    """compare_logits() of every window, joined."""
    parts = []
    with engine:
        for ids, targets in windows:
            truth = oracle.logits(ids)
            parts.append(divergence.compare_logits(truth, engine.logits(ids, truth.shape[1]), targets))
            if not np.isfinite(parts[-1]["kl"]).all():
                raise ValueError(f"{engine.name} gave logits that are not finite")
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def engines_of(args):
    if args.dump_logits:
        command = [args.dump_logits, args.model, "--threads", str(args.threads)] + (["--isa", args.isa] if args.isa else [])
        yield Engine("headrace", command, os.path.join(args.cache, "headrace.log"))
        yield Engine(INT8, command + ["--kv-type", "int8"], os.path.join(args.cache, "headrace_int8.log"))
    if args.llama_lib:
        command = [sys.executable, os.path.join(HERE, "llamacpp_logits.py"), args.model, "--lib", args.llama_lib, "--threads", str(args.threads)]
        yield Engine("llama.cpp", command, os.path.join(args.cache, "llamacpp.log"))


def cpu_model():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())


def markdown(result):
    lines = [f"# Nearness to fp32: {result['model']}", "",
             f"{result['text']}, {result['positions']} positions in windows of {result['window']}; {result['cpu']}, {result['threads']} threads", "",
             "| engine | mean KL, nats (95 %) | KL p50 / p99 / max | top-1 agreement | perplexity (fp32's) |", "|---|---|---|---|---|"]
    for name, e in result["engines"].items():
        low, high = e["kl_mean_95"]
        lines.append(f"| {name} | {e['kl_mean']:.6f} ({low:.6f} to {high:.6f}) | {e['kl_p50']:.6f} / {e['kl_p99']:.5f} / {e['kl_max']:.4f} | "
                     f"{100 * e['top1']:.2f} % ({e['top1_differ']} differ) | {e['perplexity']:.4f} ({e['perplexity_oracle']:.4f}) |")
    for name, e in result["engines"].items():
        lines += ["", f"{name}: `{e['command']}`; {e['about']}"]
    if pair := result.get("paired"):
        spans = [f"{low:+.6f} to {high:+.6f}" for low, high in (pair["bootstrap_95"], pair["normal_95"])]
        lines += ["", f"headrace - llama.cpp, mean KL: {pair['kl_difference']:+.6f} (95 %: bootstrap {spans[0]}, normal {spans[1]}), "
                  f"{pair['ratio']:.3f} times theirs; nearer at {100 * pair['nearer_positions']:.1f} % of the positions; "
                  f"top-1 {100 * pair['top1_difference']:+.2f} points.",
                  "", f"A loss above 1 % of theirs is {'excluded' if pair['excludes_loss'] else 'NOT excluded'}."]
    if change := result.get("int8_perplexity_change"):
        lines += ["", f"int8 KV against int16 KV, perplexity: {100 * change['change']:+.3f} % (95 %: {100 * change['bootstrap_95'][0]:+.3f} to "
                  f"{100 * change['bootstrap_95'][1]:+.3f} %); {100 * INT8_LOSS_ALLOWED:g} % is allowed."]
    return "\n".join(lines) + "\n"


def plain(value):
    """JSON's own types, floats to nine digits."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, (float, np.floating)) else value


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--text", default=os.path.join(HERE, "text.txt"))
    p.add_argument("--dump-logits", default="", help="our headrace_logits")
    p.add_argument("--isa", default="", help="for headrace_logits")
    p.add_argument("--llama-lib", default="", help="the folder of libllama (see llamacpp_logits.py)")
    p.add_argument("--positions", type=int, default=4096)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--cache", default=os.path.join(ROOT, "build", "quality"))
    p.add_argument("--json", required=True)
    args = p.parse_args()
    windows, oracle = windows_of(args), Oracle(args.model, args.cache)
    oracle.compute(windows)
    result = {"model": os.path.basename(args.model), "model_sha256": oracle.key, "text": os.path.basename(args.text), "positions": args.positions,
              "window": args.window, "threads": args.threads, "cpu": cpu_model(), "engines": {}}
    rows = {}
    for engine in engines_of(args):
        rows[engine.name] = measure(engine, oracle, windows)
        command = " ".join(os.path.basename(c) if c.startswith("/") else c for c in engine.command)
        result["engines"][engine.name] = divergence.summary(rows[engine.name]) | {"command": command, "about": engine.about()}
    if INT8 in rows:
        result["int8_perplexity_change"] = divergence.perplexity_change(rows[INT8], rows["headrace"])
    if "headrace" in rows and "llama.cpp" in rows:
        result["paired"] = divergence.paired(rows["headrace"], rows["llama.cpp"])
    with open(args.json, "w") as f:
        json.dump(plain(result), f, indent=1)
    with open(os.path.splitext(args.json)[0] + ".md", "w") as f:
        f.write(markdown(result))
    print(markdown(result))
    int8_holds = result.get("int8_perplexity_change", {}).get("change", 0) <= INT8_LOSS_ALLOWED
    return 0 if result.get("paired", {}).get("excludes_loss", True) and int8_holds else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as e:
        sys.exit(f"quality: {e}")

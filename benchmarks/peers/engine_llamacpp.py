#!/usr/bin/env python3
"""Times llama.cpp's engine without HTTP, through libllama's C API: prefill of 512, decode at 1, 8 and 32 sequences, decode at depth 2048.

Usage: engine_llamacpp.py MODEL.gguf [--lib FOLDER] [--threads N] [--runs N] [--out RESULTS.json --name ROW]        needs: install_peers.sh llamacpp-engine load
Prints JSON, each figure tokens a second: the median of the runs and the runs themselves, each the median of its steps. The token ids are random: the time
does not depend on them. Filling a batch from Python costs some 1 us a row, a thousandth of a step. --out adds the row to a file for report.py.
"""
import argparse
import json
import os
import random
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "benchmarks", "quality"))
import llamacpp_logits  # noqa: E402  (the binding is shared with the quality measurement)

LIB = os.path.join(ROOT, "build", "peers", "npm-engine", "node_modules", "@node-llama-cpp", "linux-x64", "bins", "linux-x64")
STEPS, DEPTH = 48, 2048


class Bench:
    def __init__(self, engine):
        self.engine, self.rng = engine, random.Random(1)

    def token(self):
        return self.rng.randrange(self.engine.vocabulary)

    def timed(self, rows):
        start = time.perf_counter()
        self.engine.decode(rows)
        return time.perf_counter() - start

    def prefill(self, tokens, repeats=5):
        times = []
        for _ in range(repeats):
            self.engine.clear()
            times.append(self.timed([(self.token(), i, 0, i == tokens - 1) for i in range(tokens)]))
        return tokens / statistics.median(times)

    def decode(self, sequences, start=0, steps=STEPS):
        times = [self.timed([(self.token(), start + i, s, True) for s in range(sequences)]) for i in range(steps)]
        return sequences / statistics.median(times)

    def run(self):
        """One figure of each kind."""
        self.engine.open_context(4096, 512, 1)
        self.prefill(16, 2)  # warm
        out = {"prefill_512": self.prefill(512)}
        self.engine.clear()
        out["decode_bs1"] = self.decode(1)
        self.engine.clear()
        for at in range(0, DEPTH, 512):
            self.engine.decode([(self.token(), at + i, 0, i == 511) for i in range(512)])
        out["decode_depth_2048"] = self.decode(1, DEPTH)
        for sequences in (8, 32):
            self.engine.open_context(256 * sequences, 512, sequences)
            out[f"decode_bs{sequences}"] = self.decode(sequences, steps=STEPS // 2)
        return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--lib", default=LIB)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--out", default="")
    p.add_argument("--name", default="")
    args = p.parse_args()
    engine = llamacpp_logits.LlamaCpp(args.model, os.path.abspath(args.lib), args.threads)
    bench = Bench(engine)
    runs = [bench.run() for _ in range(args.runs)]
    row = {k: {"tok_s": round(statistics.median(r[k] for r in runs), 1), "runs": [round(r[k], 1) for r in runs]} for k in runs[0]}
    print(json.dumps({"about": engine.about(), "threads": args.threads} | row, indent=1))
    if args.out:
        results = json.load(open(args.out)) if os.path.exists(args.out) else {}
        results.setdefault("engine", {})[args.name or os.path.basename(args.model)] = row
        with open(args.out, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as e:
        sys.exit(f"engine_llamacpp: {e}")

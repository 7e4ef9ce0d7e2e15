#!/usr/bin/env python3
"""Our engine beside llama.cpp's, both without HTTP, in alternating pairs: prompts, generation by batch and by depth, the median of the pairs' ratios.

  ./dev bench engine                                          the default model, five pairs
  ./dev bench engine MODEL.gguf --pairs 7 --threads 2
  ./dev bench engine shape:qwen2.5-0.5b:Q4_0                  made by make_model.py, random weights
  ./dev bench engine MODEL.gguf --peer-model MODEL.Q4_0.gguf  the peer with the format it is best at
  ./dev bench engine MODEL.gguf --only ours                   one side alone, no ratios
  ./dev bench engine MODEL.gguf --neighbour                   each run again beside a process that never sleeps: what share of its speed a side keeps

Ours: `headrace bench engine` (it also prints shares of this machine's limits); theirs: ../peers/engine_llamacpp.py on the packaged libllama with a
variant for each CPU, or --lib FOLDER with another build of it. One side runs at a time, each in a process of its own that loads the model anew, and the
order changes from pair to pair. Nothing else may run: the report says how many cores others used. build/engine/result.json gets every figure.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS = os.path.join(ROOT, "benchmarks", "peers")
sys.path.insert(0, PEERS)
from server import busy_seconds, machine  # noqa: E402  (what the machine is and how busy, shared with the servers' comparison)

LIB = os.path.join(ROOT, "build", "peers", "npm-engine", "node_modules", "@node-llama-cpp", "linux-x64", "bins", "linux-x64")
OUT = os.path.join(ROOT, "build", "engine")
ROWS = {  # row of ours by (prompt, batch, depth): row of theirs, what it is
    (512, 0, 0): ("prefill_512", "prompt of 512"), (0, 1, 0): ("decode_bs1", "1 sequence"), (0, 8, 0): ("decode_bs8", "8 sequences"),
    (0, 32, 0): ("decode_bs32", "32 sequences"), (0, 1, 2048): ("decode_depth_2048", "1 sequence, depth 2048"),
}
OTHERS_MAX = 0.1  # cores; above them a figure is not to be quoted


def run_json(command):
    """What a command prints as JSON, with the cores that others used meanwhile."""
    busy, own, clock = busy_seconds(), os.times(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{command[0]} ended with status {done.returncode}")
    now, took = os.times(), time.perf_counter() - clock
    used = sum(getattr(now, k) - getattr(own, k) for k in ("user", "system", "children_user", "children_system"))
    return json.loads(done.stdout), round((busy_seconds() - busy - used) / took, 3)


def ours(args):
    command = [args.ours, "bench", "engine", args.model, "--format", "json", "--repeat", "1", "--prompt", "512", "--batch", "1,8,32", "--depth", "0,2048",
               "--threads", str(args.threads)]
    report, others = run_json(command + (["--isa", args.isa] if args.isa else []))
    figures = {ROWS[key][0]: row["tokens_s"]["median"] for row in report["rows"] if (key := (row["prompt"], row["batch"], row["depth"])) in ROWS}
    shares = {ROWS[key][0]: row["share_of_int8"] if key[0] or key[1] > 1 else row["share_of_memory"]
              for row in report["rows"] if (key := (row["prompt"], row["batch"], row["depth"])) in ROWS}
    return {"figures": figures, "shares": shares, "others": others, "probes": report["probes"], "kernels": report["kernels"]}


def theirs(args):
    command = [sys.executable, os.path.join(PEERS, "engine_llamacpp.py"), args.peer_model or args.model, "--lib", args.lib, "--threads", str(args.threads),
               "--runs", "1"]
    report, others = run_json(command)
    return {"figures": {k: report[k]["tok_s"] for k, _ in ROWS.values() if k in report}, "others": others, "about": report["about"]}


SIDES = {"headrace": ours, "llama.cpp": theirs}


def beside_neighbour(side, args):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        try:
            return side(args)["figures"]
        finally:
            neighbour.kill()


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})" if values else "-"


def markdown(result):
    runs = result["runs"]
    lines = [f"# Engines: {' beside '.join(runs)}", "", f"{result['machine']}; {result['when']}; {result['threads']} threads; {os.path.basename(result['model'])}"
             + (f", the peer {os.path.basename(result['peer_model'])}" if result["peer_model"] else ""), "",
             f"{result['pairs']} alternating pairs; medians (least to largest); share: of read bandwidth for one sequence, else of the int8 rate.", ""]
    both = len(runs) == 2
    head = ["tokens/s"] + list(runs) + (["ratio"] if both else []) + (["our share of the limit"] if "headrace" in runs else [])
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for key, name in ROWS.values():
        figures = {side: [r["figures"][key] for r in of if key in r["figures"]] for side, of in runs.items()}
        cells = [name] + [spread(v) for v in figures.values()]
        if both:
            cells.append(spread([a / b for a, b in zip(*figures.values())], 2))
        if "headrace" in runs:
            cells.append(spread([100 * r["shares"][key] for r in runs["headrace"] if key in r["shares"]], 0) + " %")
        lines.append("| " + " | ".join(cells) + " |")
    for side, of in runs.items():
        if "beside" in of[0]:
            kept = {name: [100 * r["beside"][key] / r["figures"][key] for r in of if key in r["beside"]] for key, name in ROWS.values()}
            lines += ["", f"{side} beside a spinning neighbour keeps, in % of its quiet speed: "
                      + "; ".join(f"{name} {spread(v, 0)}" for name, v in kept.items() if v) + "."]
    lines.append("")
    for probe in (runs.get("headrace") or [{"probes": []}])[0]["probes"]:
        values = [p["median"] for r in runs["headrace"] for p in r["probes"] if p["name"] == probe["name"]]
        lines.append(f"- probe: {probe['name']}: {spread(values)} {probe['unit']}")
    for side, of in runs.items():
        if (others := max(r["others"] for r in of)) > OTHERS_MAX:
            lines.append(f"- DOUBT: during {side} others used up to {others} cores; measure on a quiet machine")
    return "\n".join(lines) + "\n"


def prepared(args):
    """Makes and installs what is missing."""
    os.makedirs(OUT, exist_ok=True)
    if args.model.startswith("shape:"):
        _, shape, kind = args.model.split(":")
        args.model = os.path.join(OUT, f"{shape}-{kind}.gguf")
        if not os.path.exists(args.model):
            subprocess.run([sys.executable, os.path.join(HERE, "make_model.py"), shape, kind, args.model], check=True)
    if args.only != "ours" and args.lib == LIB and not os.path.isdir(LIB):
        subprocess.run(["bash", os.path.join(PEERS, "install_peers.sh"), "llamacpp-engine"], check=True, stdout=sys.stderr)
    return [name for name in SIDES if args.only in ("", {"headrace": "ours", "llama.cpp": "peer"}[name])]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", default=os.environ.get("HEADRACE_TEST_MODEL", ""))
    p.add_argument("--peer-model", default="")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--isa", default="")
    p.add_argument("--lib", default=LIB)
    p.add_argument("--ours", default=os.path.join(ROOT, "build", "release", "headrace"))
    p.add_argument("--neighbour", action="store_true")
    p.add_argument("--only", choices=["", "ours", "peer"], default="")
    args = p.parse_args()
    if not args.model:
        p.error("MODEL.gguf or shape:SHAPE:TYPE is needed")
    names = prepared(args)
    runs = {name: [] for name in names}
    for pair in range(args.pairs):
        for name in names if pair % 2 == 0 else names[::-1]:
            runs[name].append(SIDES[name](args))
            if args.neighbour:
                runs[name][-1]["beside"] = beside_neighbour(SIDES[name], args)
            print(f"pair {pair + 1} of {args.pairs}, {name}: {runs[name][-1]['figures']}, others {runs[name][-1]['others']} cores", file=sys.stderr, flush=True)
        result = {"machine": machine(), "when": time.strftime("%Y-%m-%d %H:%M"), "model": args.model, "peer_model": args.peer_model,
                  "threads": args.threads, "pairs": pair + 1, "runs": runs}
        with open(os.path.join(OUT, "result.json"), "w") as f:
            json.dump(result, f, indent=1)
    print(markdown(result), end="")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, subprocess.CalledProcessError) as e:
        sys.exit(f"engine: {e}")

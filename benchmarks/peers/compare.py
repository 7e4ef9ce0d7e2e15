#!/usr/bin/env python3
"""Headrace beside one peer on this machine: alternating pairs with the same client, prompts and output lengths, the median of the pairs' ratios.

  compare.py MODEL.gguf --json OUT.json                              ours against llama.cpp's server
  compare.py MODEL.gguf --json OUT.json --peer openvino --rows A,D --pairs 7
  compare.py MODEL.gguf --json OUT.json --peer llamacpp --peer-model MODEL.Q4_0.gguf        the peer with the format it is best at
  compare.py MODEL.gguf --json OUT.json --only peer                  one side alone, no ratios

Rows: A one stream (tokens a second of that user, without the time to the first), B 8 streams and C 32 streams (output tokens a second, all of it),
D a 1,024-token prompt (prompt tokens a second until the first token). load.py has their lengths.

Both servers stay up, and one of them at a time is loaded: a pair's halves lie seconds apart, so that a neighbour or a clock that drifts hits both, and
neither pays for a start. The order within a pair changes from pair to pair. That is fair only where the waiting server uses no CPU: `idle_cpu` in the
result says how much of a core it used, and above 0.02 the report warns; --one-at-a-time then starts and stops a server for each half instead. Every half
has prompts of its own pair, new to both servers, so no prefix cache helps. --quiet-s waits for moments at which nothing else runs: a server whose threads
spin falls to a tenth and less beside a compiler. OUT.json gets every figure, OUT.md the tables and the command lines.
"""
import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import statistics
import sys
import time

import load
from server import Server, busy_seconds, machine, shown

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS = os.path.join(ROOT, "build", "peers")
ROWS = {  # row: what is compared, in which unit
    "A": ("output_tok_s_user", "one stream, tokens/s"), "B": ("output_tok_s", "8 streams, tokens/s"),
    "C": ("output_tok_s", "32 streams, tokens/s"), "D": ("prompt_tok_s", "1,024-token prompt, tokens/s"),
}
SHOWN = ("output_tok_s_user", "output_tok_s", "prompt_tok_s", "ttft_ms_p50", "itl_ms_p50", "itl_ms_p99")
IDLE_CPU_MAX, OTHER_CPU_MAX = 0.02, 0.1  # cores; above them a figure is not to be quoted


class Side:
    """A server and the client's view of it."""

    def __init__(self, server):
        self.server, self.client, self.starts_s, self.rows, self.memory = server, None, [], {}, {}

    def start(self, seed):
        self.starts_s.append(self.server.start())
        options = argparse.Namespace(url=f"http://127.0.0.1:{self.server.port}", model="model", api="completions", key="", timeout=600, seed=seed)
        self.client = load.Load(options)
        asyncio.run(self.client.calibrate())

    def measure(self, row, seed):
        """One run of a row, with the cores that the rest of the machine used meanwhile."""
        busy, mine, own, clock = busy_seconds(), self.server.cpu_seconds(), time.process_time(), time.perf_counter()
        out = asyncio.run(getattr(self.client, f"run_{row.lower()}")(random.Random(seed)))
        took = time.perf_counter() - clock
        used, client = self.server.cpu_seconds() - mine, time.process_time() - own
        out["server_cores"], out["client_cores"] = round(used / took, 3), round(client / took, 3)
        out["other_cores"] = round((busy_seconds() - busy - used - client) / took, 3)
        return out


def measure_quietly(side, row, seed, wait_s):
    """A run begun when others have been idle for a second; a disturbed one is measured again, with new prompts, while `wait_s` lasts. The last one counts."""
    end, attempt = time.perf_counter() + wait_s, 0
    while True:
        while time.perf_counter() < end:
            busy = busy_seconds()
            time.sleep(1)
            if busy_seconds() - busy < OTHER_CPU_MAX:
                break
        out = side.measure(row, f"{seed}/{attempt}")
        if out["other_cores"] <= OTHER_CPU_MAX or time.perf_counter() >= end:
            return out
        attempt += 1


def run_row(row, sides, args):
    """`pairs` runs of each side, alternating; one uncounted run of each first. Notes the waiting side's CPU use."""
    for side in sides:
        side.rows[row] = []
        if not args.one_at_a_time:
            side.measure(row, f"{args.seed}/{row}/warm")
    for pair in range(args.pairs):
        for side in sides if pair % 2 == 0 else sides[::-1]:
            waiting = [s for s in sides if s is not side and s.server.process]
            if args.one_at_a_time:
                side.start(args.seed)
                side.measure(row, f"{args.seed}/{row}/{pair}/warm")
            before, clock = [s.server.cpu_seconds() for s in waiting], time.perf_counter()
            out = measure_quietly(side, row, f"{args.seed}/{row}/{pair}", args.quiet_s)
            took = time.perf_counter() - clock
            out["idle_cpu"] = round(sum(s.server.cpu_seconds() - b for s, b in zip(waiting, before)) / took, 4)
            side.rows[row].append(out)
            side.memory = side.server.memory_mb()
            print(f"{row} pair {pair + 1} {side.server.name}: {out[ROWS[row][0]]} tokens/s, others {out['other_cores']} cores", file=sys.stderr, flush=True)
            if args.one_at_a_time:
                side.server.stop()


def median(runs, key):
    values = [r[key] for r in runs if r.get(key) is not None]
    return round(statistics.median(values), 2) if values else None


def summed(row, sides):
    """A row's medians by side, and with two sides the ratio ours / theirs of each pair."""
    out = {"what": load.SCENARIOS[row], "compared": ROWS[row][0], "sides": {}}
    for side in sides:
        runs = side.rows[row]
        out["sides"][side.server.name] = {"median": {k: median(runs, k) for k in SHOWN}, "runs": runs}
    if len(sides) == 2:
        ours, theirs = ([r[ROWS[row][0]] for r in s.rows[row]] for s in sides)
        ratios = [round(a / b, 3) for a, b in zip(ours, theirs) if a and b]
        if ratios:
            out["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "pairs": ratios}
    return out


def doubts(rows):
    """What speaks against quoting the figures, one line each."""
    out = []
    for row, r in rows.items():
        for name, side in r["sides"].items():
            runs = side["runs"]
            errors = sum((x["errors"] for x in runs), [])
            if errors:
                out.append(f"row {row}, {name}: {len(errors)} errors, the first: {errors[0]}")
            if any(x["short_outputs"] for x in runs):
                out.append(f"row {row}, {name}: outputs shorter than asked for (is ignore_eos honoured?)")
            disturbed = [x["other_cores"] for x in runs if x["other_cores"] > OTHER_CPU_MAX]
            if disturbed:
                out.append(f"row {row}, {name}: others used up to {max(disturbed)} cores in {len(disturbed)} of {len(runs)} runs; measure on a quiet machine")
            if (idle := max(x["idle_cpu"] for x in runs)) > IDLE_CPU_MAX:
                out.append(f"row {row}: while {name} was loaded the other server used {idle} cores; use --one-at-a-time")
    return out


def markdown(result):
    names = list(result["servers"])
    lines = [f"# {' beside '.join(names)}", "", f"{result['machine']}; {result['when']}", "",
             f"{result['pairs']} alternating pairs, {result['mode']}; medians, ratio ours / theirs as median (min to max).", ""]
    head = ["row"] + [f"{n}: tokens/s" for n in names] + (["ratio"] if len(names) == 2 else []) + [f"{n}: TTFT / ITL p50 / p99 ms" for n in names]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row, r in result["rows"].items():
        m = [r["sides"][n]["median"] for n in names]
        ratio = r.get("ratio")
        cells = [f"{row} {ROWS[row][1]}"] + [str(x[r["compared"]]) for x in m]
        cells += ([f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else "-"] if len(names) == 2 else [])
        cells += [" / ".join("-" if x[k] is None else str(x[k]) for k in ("ttft_ms_p50", "itl_ms_p50", "itl_ms_p99")) for x in m]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, s in result["servers"].items():
        lines += [f"{name}: `{s['command']}`; first token {s['starts_s'][0]} s after exec, {s['memory']['rss_mb']} MB after the run", ""]
    lines += [f"- DOUBT: {d}" for d in result["doubts"]]
    return "\n".join(lines).rstrip() + "\n"


def our_command(args):
    command = [args.ours, "serve", args.model, "--port", str(args.port), "--served-model-name", "model"]
    return command + (["--threads", str(args.threads)] if args.threads else []) + shlex.split(args.ours_args)


def peer_command(args):
    model, threads = args.peer_model or args.model, str(args.threads or os.cpu_count())
    shared = [model, "--port", str(args.port + 1), "--parallel", "32", "--threads", threads]
    python = lambda venv: os.path.join(PEERS, venv, "bin", "python")
    if args.peer == "vllm":
        command = [os.path.join(HERE, "serve_vllm.sh")] + shared
    elif args.peer == "openvino":
        command = [python("venv-openvino"), os.path.join(HERE, "serve_openvino.py")] + shared
    else:
        wheel = python("venv-llamacpp")
        command = [wheel if os.path.exists(wheel) else sys.executable, os.path.join(HERE, "serve_llamacpp.py")] + shared
    return command + shlex.split(args.peer_args)


def sides_of(args):
    logs = os.path.splitext(args.json)[0]
    out = []
    if args.only != "peer":
        out.append(Side(Server("headrace", our_command(args), args.port, f"{logs}.headrace.log")))
    if args.only != "ours":
        out.append(Side(Server(args.peer, peer_command(args), args.port + 1, f"{logs}.{args.peer}.log", limit_s=600)))
    return out


def compare(args):
    """Runs the rows; the files are written after each, so that a broken run keeps what it has."""
    sides, rows = sides_of(args), {}
    try:
        if not args.one_at_a_time:
            for side in sides:
                side.start(args.seed)
        for row in args.rows.split(","):
            run_row(row, sides, args)
            rows[row] = summed(row, sides)
            write(result_of(sides, rows, args), args)
    finally:
        for side in sides:
            side.server.stop()


def result_of(sides, rows, args):
    servers = {s.server.name: {"command": shown(s.server.command), "starts_s": s.starts_s, "memory": s.memory} for s in sides}
    return {"machine": machine(), "when": time.strftime("%Y-%m-%d %H:%M"), "pairs": args.pairs, "seed": args.seed,
            "mode": "one server at a time" if args.one_at_a_time else "both servers up and one at a time loaded", "servers": servers, "rows": rows,
            "doubts": doubts(rows)}


def write(result, args):
    with open(args.json, "w") as f:
        json.dump(result, f, indent=1)
    with open(os.path.splitext(args.json)[0] + ".md", "w") as f:
        f.write(markdown(result))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--json", required=True)
    p.add_argument("--peer", choices=("llamacpp", "openvino", "vllm"), default="llamacpp")
    p.add_argument("--peer-model", default="", help="another file or folder for the peer; vllm needs one of gguf_to_hf.py")
    p.add_argument("--peer-args", default="", help="more options for the peer, as one string")
    p.add_argument("--ours", default=os.path.join(ROOT, "build", "release", "headrace"))
    p.add_argument("--ours-args", default="", help="more options for headrace serve, as one string")
    p.add_argument("--only", choices=("ours", "peer"))
    p.add_argument("--rows", default="A,B,C,D")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--threads", type=int, default=0, help="of both; by default every CPU, and headrace decides for itself")
    p.add_argument("--port", type=int, default=8300, help="ours; the peer takes the next")
    p.add_argument("--quiet-s", type=float, default=0, help="seconds that each run may wait for a quiet machine and be repeated when disturbed")
    p.add_argument("--one-at-a-time", action="store_true")
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"), help="of the prompts")
    args = p.parse_args()
    if unknown := [r for r in args.rows.split(",") if r not in ROWS]:
        p.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    if not os.path.exists(args.model):
        p.error(f"no file {args.model}; fetch_models.sh lays the models out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped too
    compare(args)
    with open(os.path.splitext(args.json)[0] + ".md") as f:
        print(f.read())


if __name__ == "__main__":
    try:
        main()
    except OSError as e:
        sys.exit(f"compare: {e}")

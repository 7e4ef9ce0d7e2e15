#!/usr/bin/env python3
"""Starts one server, times its way to the first token, loads it with load.py, notes memory and CPU, stops it, and adds a row to a results file.

Usage: run_peer.py NAME OUT.json [--port N] [--scenarios A,B,C,D,E,F] [--repeat N] [--starts N] [--install PATH ...] -- COMMAND ...
The command must serve OpenAI's /v1/completions on 127.0.0.1:PORT under the model name `model` and end on SIGTERM. The first start is not counted
(it fills the page cache); `start_s` is the median of the next --starts. --install adds up the size on disk of a peer's files. report.py prints the file.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from server import Server, busy_seconds, machine, shown

HERE = os.path.dirname(os.path.abspath(__file__))


def size_mb(paths):
    return round(sum(int(subprocess.check_output(["du", "-sLk", p]).split()[0]) for p in paths) / 1024) if paths else None


def load(server, args):
    """The scenarios' figures, and who used the CPU meanwhile."""
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        before, busy, clock = server.cpu_seconds(), busy_seconds(), time.perf_counter()
        subprocess.check_call([sys.executable, os.path.join(HERE, "load.py"), f"http://127.0.0.1:{args.port}", "--scenarios", args.scenarios,
                               "--repeat", str(args.repeat), "--json", f.name])
        row = json.load(open(f.name))
        took, used = time.perf_counter() - clock, server.cpu_seconds() - before
    row["cpu_cores_used"] = round(used / took, 2)
    row["other_cores_used"] = round((busy_seconds() - busy - used) / took - row["client_cpu_share"], 2)  # above 0.1: measure again
    return row


def measure(server, args):
    starts = []
    try:
        for _ in range(args.starts + 1):
            server.stop()
            starts.append(server.start())
        row = {"command": shown(server.command), "start_first_s": starts[0], "start_s": statistics.median(starts[1:] or starts), "starts_s": starts[1:],
               "after_load": server.memory_mb(), "install_mb": size_mb(args.install)}
        row |= load(server, args)
        row["after_run"] = server.memory_mb()
    finally:
        server.stop()
    row["when"], row["url"] = time.strftime("%Y-%m-%d %H:%M"), None
    return row


def main():
    split = sys.argv.index("--") if "--" in sys.argv else sys.exit(__doc__)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name")
    p.add_argument("out")
    p.add_argument("--port", type=int, default=8001)
    p.add_argument("--scenarios", default="A,B,C,D,E,F")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--starts", type=int, default=3)
    p.add_argument("--limit", type=float, default=300, help="seconds that a start may take")
    p.add_argument("--install", nargs="*", default=[])
    args = p.parse_args(sys.argv[1:split])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped too
    server = Server(args.name, sys.argv[split + 1:], args.port, args.out + f".{args.name.replace('/', '_')}.log", args.limit)
    row = measure(server, args)
    results = json.load(open(args.out)) if os.path.exists(args.out) else {"machine": machine()}
    results.setdefault("servers", {})[args.name] = row
    with open(args.out, "w") as f:
        json.dump(results, f, indent=1)
    print(f"{args.name}: start {row['start_s']} s, {row['after_load']}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.CalledProcessError) as e:
        sys.exit(f"run_peer: {e}")

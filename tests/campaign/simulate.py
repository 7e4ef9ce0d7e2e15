#!/usr/bin/env python3
"""The line's order beside first come, first served, on recorded traffic: simulate.py HEADRACE TRACE"""
import json
import subprocess
import sys

MACHINE = ("--max-batch-tokens", "2048", "--max-sequences", "256", "--kv-tokens", "600000", "--max-waiting", "4096", "--brown-out", "0")
SPEED = "0.25"
# (arrivals, what, how it is compared, the limit)
GOALS = [
    ("spread", "attainment", "at least", 1.15),
    ("spread", "mean TTFT", "at most", 0.65),
    ("spread", "TPOT p90", "at most", 1.25),
    ("recorded", "attainment", "at least", 1.7),
]
REAL_TIME_GOAL = 1000


def simulate(headrace, trace, *flags):
    command = (headrace, "simulate", "--trace", trace, "--speed", SPEED, *MACHINE, *flags, "--json")
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def figures(report):
    return {"attainment": report["attainment"], "mean TTFT": report["ttft_ms"]["mean"], "TPOT p90": report["tpot_ms"]["p90"],
            "TTFT p99": report["ttft_ms"]["p99"]}


def main():
    headrace, trace = sys.argv[1:3]
    missed = 0
    for arrivals in ("spread", "recorded"):
        reports = {order: simulate(headrace, trace, "--arrivals", arrivals, "--order", order) for order in ("fair", "first-come")}
        fair, first = figures(reports["fair"]), figures(reports["first-come"])
        for what, value in fair.items():
            ratio = value / first[what]
            line = f"{arrivals:9} {what:11} {value:10.3f}, first come {first[what]:10.3f}, ratio {ratio:.3f}"
            for of, named, how, limit in GOALS:
                if (of, named) == (arrivals, what):
                    met = ratio >= limit if how == "at least" else ratio <= limit
                    missed += not met
                    line += f" ({how} {limit}: {'met' if met else 'MISSED'})"
            print(line)
        speed = min(r["times_real_time"] for r in reports.values())
        missed += speed < REAL_TIME_GOAL
        print(f"{arrivals:9} {speed:.0f} x real time (at least {REAL_TIME_GOAL}: {'met' if speed >= REAL_TIME_GOAL else 'MISSED'})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

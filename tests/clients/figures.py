"""Prints what a start costs: seconds from start to ready with a warm page cache, resident memory against the plan (packed
weights and KV), and the size of the stripped program. Exits 1 when a figure of the issue is missed.

    figures.py [STARTS]     default 7
"""

import concurrent.futures
import os
import re
import statistics
import subprocess
import sys
import tempfile

import served

READY_SECONDS_MAX = 1.0
MEMORY_RATIO_MAX, MEMORY_SLACK_MIB = 1.15, 64
BINARY_MB_MAX = 40
KV_MEMORY = "128MiB"


def start_times(model, starts):
    with open(model, "rb") as file:  # warms the page cache
        while file.read(1 << 24):
            pass
    times = []
    for _ in range(starts):
        server = served.Served(model, "--log-level", "warn")
        times.append(server.ready_seconds)
        server.stop()
    return times


def fill(server):
    """Eight long streams at once, so that KV and scratch memory are touched."""
    body = {"model": served.MODEL_NAME, "messages": [{"role": "user", "content": "Count. " * 200}], "max_tokens": 64}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for answer in [pool.submit(server.request, "POST", "/v1/chat/completions", body) for _ in range(8)]:
            assert answer.result()[0] == 200


def memory(model):
    # A pool small enough that the streams touch most of it: pages nobody touched would flatter the ratio.
    server = served.Served(model, "--log-level", "warn", "--kv-memory", KV_MEMORY)
    at_ready = server.status_field("VmRSS") / 1024
    fill(server)
    at_work = server.status_field("VmRSS") / 1024
    peak = server.status_field("VmHWM") / 1024
    server.stop()
    plan = "".join(server.banner)
    weights, kv = (int(re.search(rf"{name} (\d+) MiB", plan).group(1)) for name in ("weights", "KV"))
    return at_ready, at_work, peak, weights, kv


def stripped_mb():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["strip", "-o", out.name, served.binary()], check=True)
        return os.path.getsize(out.name) / 1e6


def main(starts):
    model = served.test_model()
    times = start_times(model, starts)
    at_ready, at_work, peak, weights, kv = memory(model)
    allowed = MEMORY_RATIO_MAX * (weights + kv) + MEMORY_SLACK_MIB
    size = stripped_mb()
    print(f"ready after start: median {statistics.median(times):.2f} s, best {min(times):.2f} s, worst {max(times):.2f} s of {starts} "
          f"(limit {READY_SECONDS_MAX} s)")
    print(f"resident memory: {at_ready:.0f} MiB when ready, {at_work:.0f} MiB after 8 long streams, {peak:.0f} MiB at its peak; plan: weights "
          f"{weights} MiB + KV {kv} MiB (limit {MEMORY_RATIO_MAX} x (weights + KV) + {MEMORY_SLACK_MIB} MiB = {allowed:.0f} MiB)")
    print(f"program, stripped: {size:.1f} MB (limit {BINARY_MB_MAX} MB)")
    return 0 if statistics.median(times) <= READY_SECONDS_MAX and peak <= allowed and size <= BINARY_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))

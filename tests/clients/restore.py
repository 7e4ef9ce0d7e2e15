"""Time to first token of a long prompt: computed, in the KV cache still, and restored once the KV cache has given it up: from
host memory, from disk with its files in the page cache, from disk without, and after a restart. What the KV cache has takes
is what the last block and the request take in any case. Prints medians and how many times faster than computing. Each answer must be the same, and all but the last block must come from the cache.

    restore.py [TOKENS [REPEATS]]      default 2048 tokens, 5 times
"""

import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import served

BLOCK_TOKENS = 64


def prompt_of(seed, tokens):
    chance = random.Random(seed)
    return [chance.randrange(300, 40_000) for _ in range(tokens)]


def ask(server, prompt):
    """Seconds to the first token, the answer's ids as text, prompt tokens from the cache."""
    body = {"model": served.MODEL_NAME, "prompt": prompt, "max_tokens": 8, "temperature": 0, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.connect()
    begin, first, text, usage = time.perf_counter(), None, "", None
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        first = first or time.perf_counter() - begin
        event = json.loads(line[6:])
        text += "".join(choice["text"] for choice in event["choices"])
        usage = event.get("usage") or usage
    connection.close()
    return first, text, usage["prompt_tokens_details"]["cached_tokens"]


def leave_page_cache(folder):
    for path in Path(folder).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def wait_written(server, blocks):
    begin = time.monotonic()
    while server.metrics()['headrace_prefix_cache_tier_spilled_blocks_total{tier="disk"}'] < blocks:
        assert time.monotonic() - begin < 60, "blocks were not written"


def restored(server, prompt, truth):
    seconds, text, cached = ask(server, prompt)
    assert text == truth, "a restored prompt has another answer"
    assert cached >= len(prompt) - BLOCK_TOKENS, f"{cached} of {len(prompt)} tokens came from the cache"
    return seconds


def main():
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    model, prompt = served.test_model(), prompt_of(1, tokens)
    # Room for one such prompt: the next one makes the pool give it up.
    pool = f"--kv-memory={(tokens // BLOCK_TOKENS + 2) * 1536}KiB"
    times = {name: [] for name in ("computed", "in the KV cache", "memory", "disk", "disk, not in page cache", "disk, after a restart")}
    server = served.Served(model, pool, "--cache-memory", f"{3 * tokens * 24}KiB")
    ask(server, prompt_of(0, 256))
    for repeat in range(repeats):
        times["computed"].append(ask(server, prompt_of(100 + repeat, tokens))[0])
        truth = ask(server, prompt)[1]
        ask(server, prompt_of(200 + repeat, tokens))
        times["memory"].append(restored(server, prompt, truth))
        times["in the KV cache"].append(restored(server, prompt, truth))
    server.stop()
    with tempfile.TemporaryDirectory() as folder:
        flags = [pool, "--cache-dir", f"{folder}/cache", "--cache-key-file", f"{folder}/key"]
        server = served.Served(model, *flags)
        ask(server, prompt)
        for repeat in range(repeats):
            seconds = ask(server, prompt_of(300 + repeat, tokens))[0]
            times["computed"].append(seconds)
            wait_written(server, (repeat + 2) * (tokens // BLOCK_TOKENS - 1))
            times["disk"].append(restored(server, prompt, truth))
            ask(server, prompt_of(300 + repeat, tokens))
            leave_page_cache(folder)
            times["disk, not in page cache"].append(restored(server, prompt, truth))
        server.stop()
        for _ in range(repeats):
            server = served.Served(model, *flags)
            ask(server, prompt_of(0, 256))
            times["disk, after a restart"].append(restored(server, prompt, truth))
            server.stop()
    computed = statistics.median(times["computed"])
    print(f"time to first token, prompt of {tokens} tokens, median of {repeats} (computed: {2 * repeats}):")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {name:<26} {median * 1000:8.1f} ms  {computed / median:6.1f} x")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The simulator beside the real server: three shapes of traffic, first token and end, medians and nine tenths.

  ./dev bench simulator                        the default model
  ./dev bench simulator MODEL.gguf --seconds 30 --cost build/simulator/cost.json
  ./dev bench simulator --wrap "chrt -r 10"    how to start what is measured (a busy machine: before others)

The machine is calibrated by steps alone (`headrace bench calibrate`), never by these runs. Prompts are token ids, so lengths are exact; answers end by
length. The same requests then go through `headrace simulate`, and the server's decision log is decided again (`--decisions`). What the client and HTTP
take (loopback) is in the server's figures only. build/simulator/result.json gets every figure. Nothing else may run.
"""
import argparse
import http.client
import json
import os
import random
import re
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADRACE = os.path.join(ROOT, "build", "release", "headrace")
OUT = os.path.join(ROOT, "build", "simulator")
BLOCK = 512  # tokens that one name of a trace's block stands for
LIMITS = ["--max-batch-tokens", "256", "--prompt-batch-tokens", "512"]  # the same for both
SEQUENCES = 16
GOAL = 0.15


def shapes(seconds, seed):
    """Requests as (milliseconds, prompt tokens, answer tokens, blocks' names): steady, in bursts, long prompts beside short ones."""
    draw = random.Random(seed)
    name = iter(range(1, 1 << 30))

    def own(prompt):
        return [next(name) for _ in range(0, prompt, BLOCK)]

    steady, at = [], 0.0
    while (at := at + draw.expovariate(4)) < seconds:
        prompt = draw.randint(50, 400)
        steady.append((int(at * 1000), prompt, draw.randint(10, 60), own(prompt)))
    bursts = []
    for second in range(0, seconds, 5):
        for _ in range(8):
            prompt = draw.randint(100, 600)
            bursts.append((second * 1000, prompt, draw.randint(20, 60), own(prompt)))
    shared = [next(name) for _ in range(2)]
    mixed, at = [], 0.0
    while (at := at + draw.expovariate(1.5)) < seconds:
        if draw.random() < 0.25:
            mixed.append((int(at * 1000), 1400, 16, shared + own(1400 - 2 * BLOCK)))
        else:
            prompt = draw.randint(30, 200)
            mixed.append((int(at * 1000), prompt, draw.randint(20, 80), own(prompt)))
    return {"steady": steady, "bursts": bursts, "long and short": mixed}


def token_ids(request, vocabulary):
    """The same ids for the same names, none of them a control token."""
    _, prompt, _, blocks = request
    ids = []
    for block in blocks:
        draw = random.Random(block)
        ids += [draw.randrange(1000, vocabulary - 1000) for _ in range(BLOCK)]
    return ids[:prompt]


class Server:
    def __init__(self, model, wrap, threads, log):
        command = wrap + [HEADRACE, "serve", model, "--port", "0", "--threads", str(threads), "--max-sequences", str(SEQUENCES),
                          "--served-model-name", "m", "--kv-memory", "1GiB", "--decision-log", log, "--speculation", "off"] + LIMITS
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = self.kv_tokens = None
        for line in self.process.stdout:
            found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
            found = re.search(r"KV \d+ MiB = (\d+) tokens", line)
            if found:
                self.kv_tokens = int(found.group(1))
                break
        if self.port is None or self.kv_tokens is None:
            sys.exit("the server did not start: " + " ".join(command))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()  # or a full pipe stops it
        for _ in range(600):
            try:
                if self.ask("GET", "/ready").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit("the server is not ready after a minute")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse()

    def one(self, start, request, ids, out):
        at, _, answer, _ = request
        body = json.dumps({"model": "m", "prompt": ids, "max_tokens": answer, "ignore_eos": True, "stream": True, "temperature": 0})
        time.sleep(max(0.0, start + at / 1000 - time.perf_counter()))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        begin = time.perf_counter()
        # No more work than that: the client runs on the processors that it measures.
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as connection:
            connection.sendall((head + body).encode())
            first, last = None, b""
            while block := connection.recv(1 << 16):
                if first is None and b"data: {" in block:
                    first = time.perf_counter()
                last = block
        end = time.perf_counter()
        if b"[DONE]" not in last:
            sys.exit(f"an answer ended early: {last[-300:]}")
        out.append((1000 * (first - begin), 1000 * (end - begin)))

    def run(self, requests, vocabulary):
        prompts = [token_ids(r, vocabulary) for r in requests]
        out = []
        start = time.perf_counter() + 0.5
        threads = [threading.Thread(target=self.one, args=(start, r, ids, out)) for r, ids in zip(requests, prompts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(out) != len(requests):
            sys.exit("some requests failed")
        return {"ttft_ms": quantiles([a for a, _ in out]), "e2e_ms": quantiles([b for _, b in out])}

    def stop(self):
        self.process.terminate()
        self.process.wait()


def quantiles(values):
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cut[49], "p90": cut[89]}


def simulate(requests, cost, trace, kv_tokens):
    with open(trace, "w") as file:
        for at, prompt, answer, blocks in requests:
            file.write(json.dumps({"timestamp": at, "input_length": prompt, "output_length": answer, "hash_ids": blocks}) + "\n")
    command = [HEADRACE, "simulate", "--trace", trace, "--cost", cost, "--kv-tokens", str(kv_tokens), "--max-sequences", str(SEQUENCES), *LIMITS, "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {key: {q: report[key][q] for q in ("p50", "p90")} for key in ("ttft_ms", "e2e_ms")} | {"times_real_time": report["times_real_time"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=os.environ.get("HEADRACE_TEST_MODEL"))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--cost", help="step costs that were measured before")
    parser.add_argument("--wrap", default="")
    options = parser.parse_args()
    wrap = shlex.split(options.wrap)
    os.makedirs(OUT, exist_ok=True)
    cost = options.cost or os.path.join(OUT, "cost.json")
    if not options.cost:
        subprocess.run(wrap + [HEADRACE, "bench", "calibrate", options.model, "--threads", str(options.threads), "--output", cost], check=True,
                       stdout=subprocess.DEVNULL)
    results, worst = {}, 0.0
    for name, requests in shapes(options.seconds, options.seed).items():
        log = os.path.join(OUT, name.replace(" ", "_") + ".decisions")
        server = Server(options.model, wrap, options.threads, log)
        try:
            real = server.run(requests, options.vocabulary)
        finally:
            server.stop()
        told = simulate(requests, cost, os.path.join(OUT, name.replace(" ", "_") + ".jsonl"), server.kv_tokens)
        same = subprocess.run([HEADRACE, "simulate", "--decisions", log], capture_output=True, text=True)
        results[name] = {"requests": len(requests), "server": real, "simulator": told, "decisions": same.stdout.strip(), "same_decisions": same.returncode == 0}
        for key in ("ttft_ms", "e2e_ms"):
            for q in ("p50", "p90"):
                off = told[key][q] / real[key][q] - 1
                worst = max(worst, abs(off))
                print(f"{name:15} {key[:-3].upper():5} {q}: server {real[key][q]:8.1f} ms, simulator {told[key][q]:8.1f} ms, off by {100 * off:+.1f} %")
        print(f"{name:15} {told['times_real_time']:.0f} x real time; {same.stdout.strip() or same.stderr.strip()}")
    with open(os.path.join(OUT, "result.json"), "w") as file:
        json.dump(results, file, indent=1)
    print(f"off by {100 * worst:.1f} % at most; the goal is {100 * GOAL:.0f} %")
    return 0 if worst <= GOAL and all(r["same_decisions"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The real server under more than it can serve: what critical traffic notices of it.

  ./dev bench overload                          the default model: alone, then 1.5 and 10 times what it can serve, a minute each
  ./dev bench overload MODEL.gguf --seconds 20 --loads 1.5,4 --json build/overload/result.json

Critical requests come at 0.3 of the capacity (measured first by as many clients as sequences), the same ones at the same times in every phase; best-effort
ones raise the total: half of the batch band, half normal with a deadline of 3 s. Goodput is what was answered whole with the first token within --ttft
and the others within --tpot on average. Behind each load the server is normal again when, three times running, a critical request's first token comes within 1.5 times the p90 of
those alone, a normal request without a deadline is answered whole with its first token within --ttft, and no rung of the brown-out ladder is in force; what
was accepted goes on meanwhile, and its end is told too. A refusal without Retry-After, an answer cut short and a lost connection count as failures. Standard library only; nothing else may run.
"""
import argparse
import asyncio
import hashlib
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADRACE = os.path.join(ROOT, "build", "release", "headrace")
SEQUENCES = 32
PROMPT, ANSWER = 128, 64  # tokens of each request
CRITICAL = 0.3  # of the capacity
DEADLINE_MS = 3000  # of best-effort requests in the normal band
KEYS = {"critical": ("critical", "critical"), "normal": ("normal", "normal"), "batch": ("batch", "batch")}


def quantile(values, q):
    v = sorted(values)
    return v[min(len(v) - 1, math.ceil(q * len(v)) - 1)] if v else None


def shown(seconds):
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"


class Server:
    def __init__(self, model, extra, keys=KEYS, sequences=SEQUENCES, log="overload"):
        os.makedirs(os.path.join(ROOT, "build", log), exist_ok=True)
        self.folder = tempfile.TemporaryDirectory()
        key_file = os.path.join(self.folder.name, "keys.toml")
        with open(key_file, "w") as f:
            for name, (highest, standard) in keys.items():
                f.write(f'[[keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\ntenant = "{name}"\n'
                        f'highest_band = "{highest}"\nstandard_band = "{standard}"\n')
        command = [HEADRACE, "serve", model, "--port", "0", "--served-model-name", "m", "--api-key-file", key_file, "--kv-memory", "512MiB",
                   "--max-sequences", str(sequences)] + extra
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(os.path.join(ROOT, "build", log, "server.log"), "w"), text=True)
        self.port = None
        for line in self.process.stdout:
            found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if self.port is None:
            sys.exit("the server did not start: " + " ".join(command))
        asyncio.get_running_loop().run_in_executor(None, self.process.stdout.read)  # or a full pipe stops it

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))


class Answer:
    def __init__(self):
        self.status = self.first = self.end = self.retry_after = self.error = None
        self.tokens = 0

    def good(self, ttft, tpot):
        return self.whole() and self.first <= ttft and (self.end - self.first) / (ANSWER - 1) <= tpot

    def whole(self):
        return self.status == 200 and self.error is None and self.tokens == ANSWER


async def ask(port, key, prompt, answer, stream=True, deadline_ms=None):
    """One request on a connection of its own; fills `answer`, seconds from before the connection is made."""
    body = {"model": "m", "prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "stream": stream, "temperature": 0}
    if stream:
        body["stream_options"] = {"include_usage": True}
    body = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    if deadline_ms:
        head += f"X-Request-Deadline-Ms: {deadline_ms}\r\n"
    begin = time.perf_counter()
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(head.encode() + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer.status = int((await reader.readline()).split()[1])
        while (line := (await reader.readline()).strip()):
            if line.lower().startswith(b"retry-after:"):
                answer.retry_after = int(line.split(b":")[1])
        text = b""
        while (line := await reader.readline()):
            if line.startswith(b"data: {") and answer.first is None:
                answer.first = time.perf_counter() - begin
            if b'"usage":{' in line.replace(b" ", b"") or (not stream and b"completion_tokens" in line):
                text = line
        found = re.search(rb'"completion_tokens":\s*(\d+)', text)
        answer.tokens = int(found.group(1)) if found else 0
        if stream and answer.status == 200 and not found:
            answer.error = "the stream ended early"
    except (OSError, IndexError, ValueError) as e:
        answer.error = repr(e)
    finally:
        if writer:
            writer.close()
    answer.end = time.perf_counter() - begin
    return answer


class Traffic:
    def __init__(self, port, seed):
        self.port, self.draw = port, random.Random(seed)

    def prompt(self):
        return [self.draw.randrange(1000, 40000) for _ in range(PROMPT)]

    async def capacity(self, seconds):
        """Requests a second that SEQUENCES clients get answered, each asking again at once; the first round warms up."""
        done, until = [], time.perf_counter() + seconds + 3

        async def client():
            while time.perf_counter() < until:
                await ask(self.port, "normal", self.prompt(), Answer())
                done.append(time.perf_counter())

        await asyncio.gather(*(client() for _ in range(SEQUENCES)))
        counted = [t for t in done if until - seconds <= t < until]
        return len(counted) / seconds

    def arrivals(self, rate, seconds, seed):
        draw, at, times = random.Random(seed), 0.0, []
        while (at := at + draw.expovariate(rate)) < seconds:
            times.append(at)
        return times

    async def open_loop(self, times, start, one):
        """Starts one(i) at each time, whatever became of the ones before; the answers when all have ended."""
        tasks = []
        for i, at in enumerate(times):
            await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
            tasks.append(asyncio.create_task(one(i)))
        return await asyncio.gather(*tasks)


async def phase(server, traffic, capacity, load, args):
    """Critical traffic alone (load None) or with best-effort traffic up to load x capacity. Returns the phase's figures."""
    start = time.perf_counter() + 0.2
    critical_times = traffic.arrivals(CRITICAL * capacity, args.seconds, args.seed)
    other_times = traffic.arrivals((load - CRITICAL) * capacity, args.seconds, args.seed + 1) if load else []
    memory, running = [server.resident_mb()], True

    async def watch():
        while running:
            memory.append(server.resident_mb())
            await asyncio.sleep(0.5)

    def other(i):
        prompt = traffic.prompt()
        if i % 2:
            return ask(traffic.port, "batch", prompt, Answer(), stream=False)
        return ask(traffic.port, "normal", prompt, Answer(), stream=False, deadline_ms=DEADLINE_MS)

    watching = asyncio.create_task(watch())
    others = asyncio.create_task(traffic.open_loop(other_times, start, other))
    critical = await traffic.open_loop(critical_times, start, lambda i: ask(traffic.port, "critical", traffic.prompt(), Answer()))
    await asyncio.sleep(max(0.0, start + args.seconds - time.perf_counter()))
    ended = time.perf_counter()
    recovered = await recovery(traffic, args.critical_p90, args) if load else None
    others = await others
    drained = time.perf_counter() - ended
    running = False
    await watching
    refused = [a for a in others if a.status in (429, 503)]
    ttft = [a.first for a in critical if a.first is not None]
    return {
        "load": load, "critical": len(critical), "critical_whole": sum(a.whole() for a in critical),
        "critical_good": sum(a.good(args.ttft, args.tpot) for a in critical),
        "critical_ttft_p50": quantile(ttft, 0.5), "critical_ttft_p90": quantile(ttft, 0.9), "critical_ttft_p99": quantile(ttft, 0.99),
        "others": len(others), "others_whole": sum(a.whole() for a in others), "refused": len(refused),
        "refused_without_retry_after": sum(a.retry_after is None for a in refused),
        "refusal_p50": quantile([a.end for a in refused], 0.5), "refusal_p99": quantile([a.end for a in refused], 0.99),
        "refusal_longest": max((a.end for a in refused), default=None),
        "refused_above_50ms": sum(a.end > 0.05 for a in refused),
        "failed": [a.error or f"status {a.status}, {a.tokens} tokens" for a in critical + others
                   if not a.whole() and a.status not in (429, 503, 504)][:5],
        "resident_mb": [round(memory[0]), round(max(memory))], "recovered_s": recovered, "drained_s": drained if load else None,
    }


async def rung(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer critical\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return int(float(re.search(r"^headrace_brown_out_rung (\S+)", text, re.M).group(1)))


async def recovery(traffic, critical_p90, args):
    """Seconds from now until the server is normal again, as above; None: not within a minute."""
    start, good = time.perf_counter(), 0
    while time.perf_counter() - start < 60:
        sent = time.perf_counter() - start
        critical, normal = await asyncio.gather(ask(traffic.port, "critical", traffic.prompt(), Answer()), ask(traffic.port, "normal", traffic.prompt(), Answer()))
        quick = critical.whole() and critical.first <= 1.5 * critical_p90 and normal.whole() and normal.first <= args.ttft
        good = good + 1 if quick and await rung(traffic.port) == 0 else 0
        if good == 1:
            since = sent
        if good == 3:
            return since
        if normal.status != 200:
            await asyncio.sleep(0.2)
    return None


def table(phases, isolated):
    lines = ["| load | critical whole | good, of alone | TTFT p50 / p90 / p99 | p90 of alone | best effort: asked, whole, refused | refusal p50 / p99 / longest "
             "| above 50 ms | resident | normal again, all answered after |", "|---|---|---|---|---|---|---|---|---|---|"]
    for p in phases:
        load = f"{p['load']} x" if p["load"] else "alone"
        again = "-" if not p["load"] else "not in 60 s" if p["recovered_s"] is None else f"{p['recovered_s']:.1f} s"
        again += f", {p['drained_s']:.1f} s" if p["load"] else ""
        lines.append(
            f"| {load} | {p['critical_whole']} of {p['critical']} | {100 * p['critical_good'] / max(1, isolated['critical_good']):.1f} % | "
            f"{shown(p['critical_ttft_p50'])} / {shown(p['critical_ttft_p90'])} / {shown(p['critical_ttft_p99'])} | "
            f"{p['critical_ttft_p90'] / isolated['critical_ttft_p90']:.2f} | {p['others']}, {p['others_whole']}, {p['refused']} | "
            f"{shown(p['refusal_p50'])} / {shown(p['refusal_p99'])} / {shown(p['refusal_longest'])} | {p['refused_above_50ms']} | "
            f"{p['resident_mb'][0]} to {p['resident_mb'][1]} MB | {again} |")
        for what in p["failed"]:
            lines.append(f"\nfailed: {what}")
        if p["refused_without_retry_after"]:
            lines.append(f"\n{p['refused_without_retry_after']} refusals without Retry-After")
    return "\n".join(lines)


async def measure(args):
    server = Server(args.model, args.serve)
    try:
        traffic = Traffic(server.port, args.seed)
        while (await ask(server.port, "normal", traffic.prompt(), Answer())).status != 200:
            await asyncio.sleep(0.1)
        capacity = await traffic.capacity(10)
        idle = [(await ask(server.port, "normal", traffic.prompt(), Answer())).first for _ in range(10)]
        args.idle_ttft = quantile(idle, 0.9)
        print(f"capacity {capacity:.1f} requests a second of {PROMPT} + {ANSWER} tokens, {SEQUENCES} at once; idle TTFT p90 {shown(args.idle_ttft)}", flush=True)
        phases = [await phase(server, traffic, capacity, None, args)]
        args.critical_p90 = phases[0]["critical_ttft_p90"]
        phases += [await phase(server, traffic, capacity, load, args) for load in args.loads]
        return {"capacity": capacity, "idle_ttft": args.idle_ttft, "phases": phases}
    finally:
        server.process.terminate()
        server.process.wait(60)


def arguments(doc, name, seconds):
    """What every benchmark of the real server can be told."""
    p = argparse.ArgumentParser(description=doc.split("\n")[0])
    p.add_argument("model", nargs="?", default=os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--seconds", type=float, default=seconds, help="of each phase")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", default=os.path.join(ROOT, "build", name, "result.json"))
    return p


def run(measure, args):
    """What measure(args) found, kept in args.json."""
    os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
    result = asyncio.run(measure(args))
    with open(args.json, "w") as f:
        json.dump(result, f, indent=1)
    return result


def main():
    p = arguments(__doc__, "overload", 60)
    p.add_argument("--loads", type=lambda v: [float(x) for x in v.split(",")], default=[1.5, 10.0], help="all traffic together, x capacity")
    p.add_argument("--ttft", type=float, default=1.0, help="s; later first tokens are no goodput")
    p.add_argument("--tpot", type=float, default=0.1, help="s a token on average; slower answers are no goodput")
    p.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="further flags of headrace serve")
    result = run(measure, p.parse_args())
    print(table(result["phases"], result["phases"][0]))


if __name__ == "__main__":
    main()

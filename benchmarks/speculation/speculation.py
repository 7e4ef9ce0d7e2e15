#!/usr/bin/env python3
"""Speculation on and off, one stream, in turns: tokens a second of six tasks like Spec-Bench's (Xia et al., 2024), of a
text to copy and of one that repeats nothing.

    benchmarks/speculation/speculation.py HEADRACE MODEL.gguf [--threads N] [--prompts N] [--repeat N] [--max-tokens N]
        [--only tasks|copy|random]

Two servers of the same binary, `--speculation off` and `lookup`, answer each request one after the other, greedily, the
order changing from request to request. Both answers must be equal, else the script fails. Every request has a
cache_salt of its own, so that no answer is drafted from an earlier one to the same question. A ratio is of the time
from the first token to the last: by the clock, the least of the repeats, and by the processor time of the server's
threads, their median, which holds beside other processes when --threads is 1.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "quality", "text.txt")


def passages(count, size):
    """Pieces of `size` characters or more, whole paragraphs, from different places of the text."""
    with open(TEXT, encoding="utf-8") as file:
        paragraphs = [p.strip() for p in file.read().split("\n\n") if p.strip()]
    out = []
    for i in range(count):
        at, piece = i * len(paragraphs) // count, ""
        while len(piece) < size:
            piece += paragraphs[at % len(paragraphs)].replace("\n", " ") + "\n"
            at += 1
        out.append(piece.strip())
    return out


def names_in(text):
    return sorted(set(re.findall(r"\b(?:Mr|Mrs|Miss)\. ?[A-Z][a-z]+|\b[A-Z][a-z]{4,}\b", text)))


def tasks(count):
    """name -> conversations"""
    turn = lambda text: [{"role": "user", "content": text}]
    short, middle = passages(count, 350), passages(count, 800)
    out = {name: [] for name in ("edit", "summary", "question", "retrieval", "records", "turns")}
    for i in range(count):
        sentences = [s for s in re.split(r"(?<=[.!?])\s+", middle[i]) if len(s) > 20][:6]
        out["edit"].append(turn("Correct the spelling of this text and write the whole text again, changing nothing else:\n\n" + short[i]))
        out["summary"].append(turn("Summarise this text in four sentences, using its own words:\n\n" + middle[i]))
        out["question"].append(turn("Text:\n" + middle[i] + "\n\nQuestion: What happens in this text, and who speaks? Answer with quotes from the text."))
        numbered = "\n\n".join(f"[{n + 1}] {p}" for n, p in enumerate(passages(3 + i, 300)[i:i + 3]))
        out["retrieval"].append(turn(numbered + "\n\nQuote the second passage, [2], word for word."))
        records = [{"id": n + 1, "sentence": s, "words": len(s.split())} for n, s in enumerate(sentences)]
        out["records"].append(turn("Here are records as JSON:\n" + json.dumps(records, indent=1) + '\n\nWrite the same JSON again with "checked": true added to each record.'))
        out["turns"].append([*turn("Tell me what this is about:\n" + short[i]),
                             {"role": "assistant", "content": "It is a scene from a novel. " + " ".join(sentences[:3])},
                             *turn("Say that again, and then go on with the next thing that happens.")])
    return out


def copies(count):
    return [[{"role": "user", "content": "Repeat the following text exactly:\n\n" + p}] for p in passages(count, 600)]


def random_words(count):
    words = sorted(set(re.findall(r"[a-z]{4,}", open(TEXT, encoding="utf-8").read())))
    return [[{"role": "user", "content": "Invent sentences with these words: " + ", ".join(words[(i * 97 + n * 31) % len(words)] for n in range(20))}]
            for i in range(count)]


class Server:
    def __init__(self, binary, model, extra):
        self.port = None
        command = [binary, "serve", model, "--port", "0", "--served-model-name", "m", "--max-sequences", "4", *extra]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        if self.port is None:
            sys.exit("the server did not start: " + " ".join(command))
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready").read()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("the server ended")
                time.sleep(0.1)

    def cpu_seconds(self):
        total = 0
        tasks_folder = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks_folder):
            with open(f"{tasks_folder}/{task}/schedstat") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def ask(self, messages, salt, options):
        """(answer, tokens, seconds, processor seconds) from the first token on."""
        body = {"model": "m", "messages": messages, "stream": True, "stream_options": {"include_usage": True},
                "cache_salt": salt, **options}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        text, first, tokens = "", None, 0
        with urllib.request.urlopen(request) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                for choice in event["choices"]:
                    if content := choice["delta"].get("content"):
                        first = first or (time.monotonic(), self.cpu_seconds())
                        text += content
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
        if first is None:
            return text, tokens, 0, 0
        return text, tokens, time.monotonic() - first[0], self.cpu_seconds() - first[1]

    def metric(self, name):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        return float(re.search(rf"^{name} (\S+)", text, re.M).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def measure(servers, conversations, args, options, label):
    """Per conversation the ratios off / on, and all seconds."""
    clock, cpu, seconds, tokens_all = [], [], [0.0, 0.0], 0
    before = [servers[1].metric(f"headrace_spec_{kind}_tokens_total") for kind in ("drafted", "accepted")]
    for number, messages in enumerate(conversations):
        times = ([], [])
        answers = [None, None]
        for repeat in range(args.repeat):
            for side in ((0, 1), (1, 0))[(number + repeat) % 2]:
                salt = f"{label}-{number}-{repeat}-{side}"
                text, tokens, wall, processor = servers[side].ask(messages, salt, options)
                if answers[side] is not None and text != answers[side]:
                    sys.exit(f"{label}: one server gave two answers")
                answers[side] = text
                times[side].append((wall, processor))
        if answers[0] != answers[1]:
            sys.exit(f"{label}: the answer with speculation is another one:\n{answers[0]!r}\n{answers[1]!r}")
        if tokens < 8:
            continue
        tokens_all += tokens
        wall = [min(t[0] for t in times[side]) for side in (0, 1)]
        processor = [statistics.median(t[1] for t in times[side]) for side in (0, 1)]
        clock.append(wall[0] / wall[1])
        cpu.append(processor[0] / processor[1])
        seconds = [seconds[side] + wall[side] for side in (0, 1)]
    drafted, accepted = [servers[1].metric(f"headrace_spec_{kind}_tokens_total") - b
                         for kind, b in zip(("drafted", "accepted"), before)]
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
    print(f"{label:10} {tokens_all:6} {tokens_all / max(seconds[0], 1e-9):8.1f} {tokens_all / max(seconds[1], 1e-9):8.1f}"
          f" {mean(clock):8.2f} {mean(cpu):8.2f} {min(cpu, default=0):6.2f}..{max(cpu, default=0):.2f}"
          f" {drafted:7.0f} {accepted:7.0f}", flush=True)
    return mean(clock), mean(cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headrace")
    parser.add_argument("model")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--only", choices=["tasks", "copy", "random"])
    args = parser.parse_args()
    servers = [Server(args.headrace, args.model, ["--threads", args.threads, "--speculation", how]) for how in ("off", "lookup")]
    try:
        greedy = {"temperature": 0, "max_tokens": args.max_tokens}
        for server in servers:  # the first request after a start is slower
            server.ask([{"role": "user", "content": "Hello"}], "warm", {"temperature": 0, "max_tokens": 16})
        print("task       tokens  off t/s   on t/s    clock      cpu      range drafted accepted")
        means = [] if args.only not in (None, "tasks") else [measure(servers, conversations, args, greedy, name) for name, conversations in tasks(args.prompts).items()]
        for column, what in ((0, "by the clock"), (1, "by processor time")) if means else ():
            mean = math.exp(sum(math.log(m[column]) for m in means) / len(means))
            print(f"six tasks, {what}: {mean:.2f} x")
        if args.only in (None, "copy"):
            measure(servers, copies(args.prompts), args, greedy, "copy")
        if args.only in (None, "random"):
            drawn = {"temperature": 1.5, "seed": 7, "max_tokens": args.max_tokens}
            measure(servers, random_words(args.prompts), args, drawn, "random")
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()

"""Goal: hours at the pool's edge lose nothing. Clients that never stop ask for answers of unknown length, from a KV pool half
as large as they want; one in ten leaves. No request fails, the pool is full, what preemptions make to be computed twice
stays below 2 %, memory stays where it was after a quarter of the time, and at the end nothing is held.

    soak.py [SECONDS]      default 60, CI's; ./dev campaign soak takes an hour
"""

import http.client
import json
import os
import random
import statistics
import sys
import threading
import time

import served

CLIENTS = 24
KV_MEMORY = "128MiB"  # 5,800 tokens of the default model; the clients would hold twice as many
WASTE_MAX = 0.02
USAGE_MIN = 0.7  # on average: what is admitted has to fit until it ends, and one answer is a tenth of this pool
MEMORY_GROWTH_KIB_MAX = 16 * 1024
WORDS = "river mill wheel water stone grain flour gate channel winter harvest village bridge rope wood iron market road".split()


def message(chance):
    """Half of them begin alike, and so share blocks."""
    shared = " ".join(WORDS * 8) if chance.random() < 0.5 else ""
    own = " ".join(chance.choice(WORDS) for _ in range(chance.randrange(20, 250)))
    return f"{shared} {own} Write a story of about {chance.choice((20, 60, 150, 300))} words with these words."


class Client(threading.Thread):
    def __init__(self, server, seed, until, problems):
        super().__init__()
        self.server, self.chance, self.until, self.problems = server, random.Random(seed), until, problems
        self.whole = self.left = 0

    def run(self):
        while time.monotonic() < self.until and not self.problems:
            try:
                self.ask()
            except (OSError, http.client.HTTPException, ValueError) as problem:
                self.problems.append(f"a client heard {problem!r}")

    def ask(self):
        stream = self.chance.random() < 0.5
        body = {"model": served.MODEL_NAME, "messages": [{"role": "user", "content": message(self.chance)}], "stream": stream,
                "temperature": 0.9, "seed": self.chance.randrange(1 << 30), "max_tokens": self.chance.choice((100, 400, 400, 800))}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                self.problems.append(f"status {answer.status}: {answer.read()[:300]}")
            elif stream and self.chance.random() < 0.2:
                answer.read(self.chance.randrange(1, 20_000))
                self.left += 1
            else:
                self.check(answer.read().decode(), stream)
        finally:
            connection.close()

    def check(self, text, stream):
        if stream and not text.endswith("data: [DONE]\n\n"):
            self.problems.append(f"a stream ended early: {text[-300:]}")
        elif not stream and json.loads(text)["choices"][0]["finish_reason"] not in ("stop", "length"):
            self.problems.append(f"a strange end: {text[-300:]}")
        self.whole += 1


def watch(server, clients, begin, seconds):
    """Figures every half second while the clients ask: use of the pool once it was full, memory after a quarter and the most."""
    usage, waiting, first, most = [], [], None, 0
    while any(client.is_alive() for client in clients):
        now, memory = server.metrics(), server.status_field("VmRSS")
        elapsed = time.monotonic() - begin
        if seconds / 4 <= elapsed < seconds:
            first = first or memory
            most = max(most, memory)
            usage.append(now["headrace_kv_usage_ratio"])
            waiting.append(now["headrace_sequences_waiting"])
        for client in clients:
            client.join(0.5 / len(clients))
    if not usage:  # all clients gave up before; what they heard is told below
        return {"usage": 0, "waiting": 0, "growth_kib": 0}
    return {"usage": statistics.mean(usage), "waiting": statistics.mean(waiting), "growth_kib": most - first}


def main(seconds):
    server = served.Served(served.test_model(), "--log-level", "warn", "--kv-memory", KV_MEMORY, "--max-sequences", str(CLIENTS))
    seed, problems, begin = int(os.environ.get("HEADRACE_SEED", "1")), [], time.monotonic()
    clients = [Client(server, seed * 1000 + i, begin + seconds, problems) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    seen = watch(server, clients, begin, seconds)
    server.wait_idle(30)
    now = server.metrics()
    computed = now["headrace_prompt_tokens_total"] + now["headrace_generated_tokens_total"]
    waste = now["headrace_recomputed_tokens_total"] / computed
    print(f"{sum(c.whole for c in clients)} answers and {sum(c.left for c in clients)} clients that left in {time.monotonic() - begin:.0f} s, seed {seed}")
    print(f"{computed:.0f} tokens computed, {100 * waste:.2f} % again after {now['headrace_preemptions_total']:.0f} preemptions (at most {100 * WASTE_MAX:.0f} %)")
    print(f"the pool was {100 * seen['usage']:.1f} % in use (at least {100 * USAGE_MIN:.0f} %), {seen['waiting']:.1f} waited; memory grew by {seen['growth_kib']} KiB "
          f"(at most {MEMORY_GROWTH_KIB_MAX})")
    code = server.stop()
    checks = [(waste <= WASTE_MAX, "too much was computed twice"), (seen["usage"] >= USAGE_MIN, "the pool was not full"),
              (seen["waiting"] > 1, "nobody waited: nothing was at the edge"), (seen["growth_kib"] <= MEMORY_GROWTH_KIB_MAX, "memory grew"),
              (now['headrace_sequences_finished_total{reason="error"}'] == 0, "a sequence ended with an error"),
              (code == 0, f"serve ended with {code}: {server.final_log[-2000:]}")]
    problems += [what for good, what in checks if not good]
    print("\n".join(f"FAILED {problem}" for problem in problems[:10]) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60))

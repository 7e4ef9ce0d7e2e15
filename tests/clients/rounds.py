"""Goal: clients that connect, disconnect and cancel leave nothing behind. Each round sends one of every kind of visitor at
once; after a tenth of the rounds and after all of them descriptors, threads, KV blocks and slots are equal, and memory has
grown by at most 2 MiB. Prints the figures.

    rounds.py [ROUNDS]      default 1000, the figure of the issue; at least 100
"""

import json
import os
import random
import socket
import struct
import sys
import time

import served

MEMORY_GROWTH_KIB_MAX = 2 * 1024
LINGER_SECONDS = 3  # the server keeps an answered connection for up to two
CHAT = {"model": served.MODEL_NAME, "temperature": 0, "messages": [{"role": "user", "content": "Count to one hundred."}]}


class Visitor:
    """One raw connection that has sent a request."""

    def __init__(self, server, body=None, raw=None):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        if body is not None:
            data = json.dumps(body).encode()
            raw = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: " + str(len(data)).encode() + b"\r\n\r\n" + data)
        if raw:
            self.socket.sendall(raw)

    def read_some(self):
        return self.socket.recv(4096)

    def read_all(self):
        """Until the server closes or the body has ended."""
        data = b""
        while block := self.socket.recv(65536):
            data += block
            if data.endswith((b"0\r\n\r\n", b"[DONE]\n\n\r\n0\r\n\r\n")):
                break
        return data

    def close(self):
        self.socket.close()

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)
        self.read_all()
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def play_round(server, chance):
    stream, whole = {**CHAT, "stream": True, "max_tokens": 64}, {**CHAT, "max_tokens": 64}
    visitors = [
        (Visitor(server), "close"),                                                        # says nothing
        (Visitor(server, raw=b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le"), "reset"),
        (Visitor(server, raw=b"\x16\x03\x01 this is no HTTP\r\n\r\n"), "close"),
        (Visitor(server, body=stream), chance.choice(("close", "reset", "half_close"))),  # leaves in the queue or prefill
        (Visitor(server, body=whole), chance.choice(("close", "reset"))),
    ]
    decoding = Visitor(server, body=stream)
    decoding.read_some()  # leaves while tokens come
    finished = Visitor(server, body={**stream, "max_tokens": 4})
    for visitor, leave in visitors:
        getattr(visitor, leave)()
    decoding.reset() if chance.random() < 0.5 else decoding.close()
    assert b"[DONE]" in finished.read_all()
    finished.close()
    status, _, _ = server.request("POST", "/v1/chat/completions", {**CHAT, "deadline_ms": 1})
    assert status in (200, 503, 504), status


def settled_descriptors(server):
    """The fewest seen while connections linger and close; what leaks is never missing from the fewest."""
    end, fewest = time.monotonic() + LINGER_SECONDS, server.descriptors()
    while time.monotonic() < end:
        fewest = min(fewest, server.descriptors())
        time.sleep(0.02)
    return fewest


def measure(server):
    """Figures of the idle server."""
    server.wait_idle()
    now = server.metrics()
    return {"descriptors": settled_descriptors(server), "threads": server.status_field("Threads"), "kv_blocks": now["headrace_kv_blocks_used"],
            "sequences": now["headrace_sequences_running"] + now["headrace_sequences_waiting"], "memory_kib": server.status_field("VmRSS")}


def main(rounds):
    server = served.Served(served.test_model(), "--log-level", "warn")
    chance = random.Random(int(os.environ.get("HEADRACE_SEED", "1")))
    first_at = max(10, rounds // 10)
    begin, first = time.monotonic(), None
    for number in range(1, rounds + 1):
        play_round(server, chance)
        if number == first_at:
            first = measure(server)
    last = measure(server)
    cancelled = server.metrics()['headrace_sequences_finished_total{reason="cancelled"}']
    for name in first:
        print(f"{name:12} after {first_at} rounds {first[name]:>10.0f}   after {rounds} rounds {last[name]:>10.0f}")
    growth = last["memory_kib"] - first["memory_kib"]
    print(f"memory grew by {growth} KiB; {cancelled:.0f} sequences cancelled; {time.monotonic() - begin:.0f} s")
    code = server.stop()
    problems = [f"{name}: {first[name]} became {last[name]}" for name in first if name != "memory_kib" and first[name] != last[name]]
    if growth > MEMORY_GROWTH_KIB_MAX:
        problems.append(f"memory grew by {growth} KiB, more than {MEMORY_GROWTH_KIB_MAX}")
    if code != 0:
        problems.append(f"serve ended with {code}: {server.final_log[-2000:]}")
    if cancelled == 0:
        problems.append("no sequence was cancelled: the rounds tested nothing")
    print("\n".join(f"FAILED {problem}" for problem in problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))

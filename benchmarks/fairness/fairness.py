#!/usr/bin/env python3
"""Tenants of one real server: what one of them takes from the others.

  ./dev bench fairness                          the default model: both parts, about four minutes
  ./dev bench fairness MODEL.gguf --seconds 30 --json build/fairness/result.json

Shares: two tenants with work waiting all the time, ten times as many requests of the one; the tokens each gets (Jain's index), and all
tokens beside a server on which all are one tenant's. Flood: ten tenants that together ask for 0.6 of the capacity; the others' time to the first
token while one of them asks for all the rest, and while it asks a hundred times as often as each of them. Standard library only; nothing else may run.
"""
import argparse
import asyncio
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "overload"))
from overload import ANSWER, PROMPT, Answer, Server, Traffic, arguments, ask, quantile, run, shown  # noqa: E402

SEQUENCES = 8
TENANTS = [f"t{i}" for i in range(10)]  # the first one floods
TOGETHER = 0.6  # of the capacity, all tenants asking alike


async def backlog(traffic, clients, seconds):
    """Tokens that each key of `clients` ({key: how many ask again and again, under that key}) gets in the seconds after a first round."""
    got, begin = {key: 0 for key in clients}, time.perf_counter()
    first, until = begin + 3, begin + 3 + seconds

    async def client(key):
        while time.perf_counter() < until:
            answer = await ask(traffic.port, key[0], traffic.prompt(), Answer())
            if first <= time.perf_counter() < until and answer.whole():
                got[key] += PROMPT + ANSWER

    await asyncio.gather(*(client(key) for key, count in clients.items() for _ in range(count)))
    return got


def jain(shares):
    return sum(shares) ** 2 / (len(shares) * sum(s * s for s in shares))


async def flood(traffic, capacity, first_rate, args):
    """(times to first token of the others, how many of theirs were not whole, asked and refused of the first) at first_rate requests a second of it. What
    the first still waits for when the others are served is cancelled."""
    each = TOGETHER * capacity / len(TENANTS)
    start = time.perf_counter() + 0.2
    tasks = {tenant: [] for tenant in TENANTS}

    async def begin(i, tenant):
        for at in traffic.arrivals(each if i else first_rate, args.seconds, args.seed + i):
            await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
            tasks[tenant].append(asyncio.create_task(ask(traffic.port, tenant, traffic.prompt(), Answer())))

    await asyncio.gather(*(begin(i, tenant) for i, tenant in enumerate(TENANTS)))
    others = await asyncio.gather(*(task for tenant in TENANTS[1:] for task in tasks[tenant]))
    refused = sum(task.done() and task.result().status in (429, 503) for task in tasks[TENANTS[0]])
    for task in tasks[TENANTS[0]]:
        task.cancel()
    await asyncio.gather(*tasks[TENANTS[0]], return_exceptions=True)
    for what in sorted({a.error or f"status {a.status}" for a in others if not a.whole()}):
        print(f"  not whole: {what}")
    return [a.first for a in others if a.whole()], sum(not a.whole() for a in others), len(tasks[TENANTS[0]]), refused


async def measure(args):
    result = {}
    server = Server(args.model, args.serve, {t: ("normal", "normal") for t in TENANTS}, SEQUENCES, "fairness")
    try:
        traffic = Traffic(server.port, args.seed)
        while (await ask(server.port, "t0", traffic.prompt(), Answer())).status != 200:
            await asyncio.sleep(0.1)
        alone = await backlog(traffic, {("t0", 0): 160, ("t0", 1): 16}, args.seconds)
        both = await backlog(traffic, {("t0", 0): 160, ("t1", 0): 16}, args.seconds)
        total = [sum(g.values()) / args.seconds for g in (alone, both)]
        result["shares"] = {"jain_of_one_tenant": jain(list(alone.values())), "jain": jain(list(both.values())), "tokens_per_second_one_tenant": total[0],
                            "tokens_per_second": total[1]}
        print(f"shares of two that offer 10 : 1: Jain {jain(list(both.values())):.3f} (as one tenant {jain(list(alone.values())):.3f}), {total[1]:.0f} tokens/s "
              f"(as one tenant {total[0]:.0f}: {total[1] / total[0]:.3f})", flush=True)
        capacity = total[0] / (PROMPT + ANSWER)
        each = TOGETHER * capacity / len(TENANTS)
        for name, rate in (("like the others", each), ("all the rest", capacity - 9 * each), ("100 times", 100 * each)):
            first, failed, asked, refused = await flood(traffic, capacity, rate, args)
            result[name] = {"rate": rate, "p50": quantile(first, 0.5), "p99": quantile(first, 0.99), "others": len(first), "others_not_whole": failed,
                            "asked": asked, "refused": refused}
            print(f"one tenant asks {name} ({rate:.1f} a second, {asked} asked, {refused} refused): the others' TTFT p50 / p90 / p99 "
                  f"{shown(quantile(first, 0.5))} / {shown(quantile(first, 0.9))} / {shown(quantile(first, 0.99))} of {len(first)}, {failed} not whole", flush=True)
        ratio = result["100 times"]["p99"] / result["all the rest"]["p99"]
        print(f"p99 beside 100 times / beside all the rest: {ratio:.2f}")
        return result
    finally:
        server.process.terminate()
        server.process.wait(60)


def main():
    p = arguments(__doc__, "fairness", 45)
    p.add_argument("--serve", nargs=argparse.REMAINDER, default=["--speculation", "off", "--threads", "1"], help="flags of headrace serve; one thread leaves a processor to the clients")
    run(measure, p.parse_args())


if __name__ == "__main__":
    main()

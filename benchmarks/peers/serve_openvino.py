#!/usr/bin/env python3
"""Serves a llama or qwen GGUF file, or an OpenVINO model folder, with OpenVINO GenAI's continuous batching behind a thin OpenAI-style HTTP layer.

Usage: serve_openvino.py MODEL [--port N] [--parallel N] [--threads N] [--ctx N]      needs: install_peers.sh openvino
OpenVINO GenAI has no HTTP server of its own; this one is as small as it can be: a thread steps the pipeline, the event loop writes a
streamed event a token. So its figures flatter HTTP handling and carry Python's share.
"""
import argparse
import asyncio
import json
import os
import threading
import time

import openvino_genai as genai
from aiohttp import web

TOKENIZER_LOCK = threading.Lock()


class Engine:
    """Owns the pipeline. add() is called on the event loop; one thread calls step() and hands each token over to the loop."""

    def __init__(self, args):
        config = genai.SchedulerConfig()
        config.max_num_seqs, config.max_num_batched_tokens = args.parallel, args.batch_tokens
        config.cache_size, config.enable_prefix_caching, config.dynamic_split_fuse = args.cache_gb, True, True
        properties = {"INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": "LATENCY"}
        self.pipe = genai.ContinuousBatchingPipeline(args.model, config, "CPU", properties)
        self.tokenizer = self.pipe.get_tokenizer()
        self.live, self.next_id, self.new = {}, 0, []
        self.wake, self.lock = threading.Event(), threading.Lock()

    def add(self, ids, config, queue):
        with self.lock:
            self.new.append((ids, config, queue))
        self.wake.set()

    def loop(self, event_loop):
        while True:
            if not self.pipe.has_non_finished_requests() and not self.new:
                self.wake.wait()
                self.wake.clear()
            with self.lock:
                new, self.new = self.new, []
            for ids, config, queue in new:
                self.next_id += 1
                self.live[self.next_id] = (self.pipe.add_request(self.next_id, ids, config), queue)
            if self.pipe.has_non_finished_requests():
                self.pipe.step()
            out = []
            for key, (handle, queue) in list(self.live.items()):
                tokens = []
                while handle.can_read():
                    for one in handle.read().values():
                        tokens += one.generated_ids
                finished = handle.get_status() != genai.GenerationStatus.RUNNING
                if tokens or finished:
                    out.append((queue, tokens, finished))
                if finished:
                    del self.live[key]
            if out:
                event_loop.call_soon_threadsafe(lambda batch=out: [q.put_nowait((t, f)) for q, t, f in batch])
                time.sleep(0.0002)  # step() keeps Python's lock: without a pause here the event loop writes nothing for many steps


def generation_config(body):
    config = genai.GenerationConfig()
    config.max_new_tokens = int(body.get("max_tokens") or body.get("max_completion_tokens") or 128)
    config.ignore_eos = bool(body.get("ignore_eos", False))
    config.apply_chat_template = False
    if float(body.get("temperature", 1)) > 0:
        config.do_sample, config.temperature, config.top_p = True, float(body.get("temperature", 1)), float(body.get("top_p", 1))
    return config


class Detokenizer:
    """Text of a growing token list; holds back what ends inside a character. A token that is text by itself is decoded once and remembered:
    the library's decode() is a model run of its own."""

    known = {}

    def __init__(self, tokenizer):
        self.tokenizer, self.pending = tokenizer, []

    def __call__(self, tokens):
        out = ""
        for token in tokens:
            if not self.pending and token in self.known:
                out += self.known[token]
                continue
            self.pending.append(token)
            with TOKENIZER_LOCK:
                text = self.tokenizer.decode(self.pending)
            if text.endswith("\ufffd") and len(self.pending) < 8:
                continue
            if len(self.pending) == 1:
                self.known[token] = text
            self.pending = []
            out += text
        return out


async def complete(request):
    engine, body = request.app["engine"], await request.json()
    chat = request.path.endswith("/chat/completions")
    prompt = engine.tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True) if chat else body["prompt"]
    with TOKENIZER_LOCK:
        ids = engine.tokenizer.encode(prompt, add_special_tokens=False).input_ids
    queue, text_of, count = asyncio.Queue(), Detokenizer(engine.tokenizer), 0
    engine.add(ids, generation_config(body), queue)
    kind = "chat.completion" if chat else "text_completion"

    def event(text, reason=None):
        choice = {"index": 0, "finish_reason": reason} | ({"delta": {"content": text}} if chat else {"text": text})
        return {"object": kind + (".chunk" if chat else ""), "model": "model", "choices": [choice]}

    usage = lambda: {"prompt_tokens": ids.shape[1], "completion_tokens": count, "total_tokens": ids.shape[1] + count}
    write = None
    if body.get("stream"):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        write = lambda data: response.write(b"data: " + json.dumps(data).encode() + b"\n\n")
    whole, finished = "", False
    while not finished:
        tokens, finished = await queue.get()
        count += len(tokens)
        text = text_of(tokens)
        if write and text:
            await write(event(text))
        whole += text
    if not write:
        answer = event(whole, "length")
        if chat:
            answer["choices"][0]["message"] = {"role": "assistant", "content": answer["choices"][0].pop("delta")["content"]}
        return web.json_response(answer | {"object": kind, "usage": usage()})
    await write(event("", "length"))
    await write({"object": kind, "model": "model", "choices": [], "usage": usage()})
    await response.write(b"data: [DONE]\n\n")
    return response


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--port", type=int, default=8003)
    p.add_argument("--parallel", type=int, default=32)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ctx", type=int, default=4096, help="accepted for likeness; the cache is shared and paged")
    p.add_argument("--cache-gb", type=int, default=3)
    p.add_argument("--batch-tokens", type=int, default=256, help="most tokens of one step, prefill chunks included (the library's default)")
    args = p.parse_args()
    app = web.Application(client_max_size=64 << 20)
    app["engine"] = engine = Engine(args)

    async def start(_):
        threading.Thread(target=engine.loop, args=(asyncio.get_running_loop(),), daemon=True).start()

    app.on_startup.append(start)
    app.add_routes([web.post("/v1/completions", complete), web.post("/v1/chat/completions", complete)])
    import uvloop

    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=args.port, access_log=None, print=lambda *_: print(f"OpenVINO GenAI on 127.0.0.1:{args.port}", flush=True))


if __name__ == "__main__":
    main()

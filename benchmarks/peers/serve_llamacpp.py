#!/usr/bin/env python3
"""Serves a GGUF file with llama.cpp's own HTTP server on the loopback address: from the xllamacpp wheel, or a natively built llama-server.

Usage: serve_llamacpp.py MODEL.gguf [--port N] [--parallel N] [--threads N] [--ctx N] [--binary LLAMA_SERVER]      more options go to llama-server
The wheel is compiled for AVX2 only; on a CPU with AVX-512 the native build (install_peers.sh llamacpp-native) is the fair opponent: it is taken where
it is found under build/peers, or named with --binary or $LLAMA_SERVER; --wheel asks for the wheel. --ctx is the context of one request; the cache holds
--parallel times that, each slot with its own. Both start with: flash attention auto, continuous batching, prompt cache on (slots and the 8 GiB store of
idle prompts), weights repacked for the CPU, warm-up run.
"""
import argparse
import os
import signal
import sys

NATIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "peers", "llama-server")


def native(args):
    command = [args.binary, "--model", args.model, "--host", "127.0.0.1", "--port", str(args.port), "--parallel", str(args.parallel),
               "--threads", str(args.threads), "--threads-batch", str(args.threads), "--ctx-size", str(args.ctx * args.parallel),
               "--flash-attn", "auto", "--cont-batching", "--alias", "model", "--offline", "--fit", "off", "--no-ui", "--log-verbosity", "1"]
    command.append("--kv-unified" if args.unified else "--no-kv-unified")
    os.execv(args.binary, command + args.more)


def wheel(args):
    try:
        import xllamacpp as x
    except ImportError:
        sys.exit("serve_llamacpp: neither a native llama-server nor the package xllamacpp is here: install_peers.sh llamacpp-native or llamacpp")
    if args.more:
        sys.exit(f"serve_llamacpp: the wheel takes no options of llama-server: {' '.join(args.more)}")

    p = x.CommonParams()
    p.model.path = args.model
    p.model_alias = {"model"}
    p.hostnames, p.port = ["127.0.0.1"], args.port
    p.n_parallel, p.n_ctx = args.parallel, args.ctx * args.parallel
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO
    p.cont_batching = p.cache_prompt = p.warmup = p.offline = p.use_jinja = True
    p.kv_unified, p.fit_params, p.no_extra_bufts, p.ui, p.verbosity = args.unified, False, False, False, 1
    server = x.Server(p)
    print(f"llama.cpp (xllamacpp {x.__version__}) on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--port", type=int, default=8001)
    p.add_argument("--parallel", type=int, default=32)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ctx", type=int, default=4096, help="tokens of one request (prompt + output)")
    p.add_argument("--unified", action="store_true", help="one cache shared by all slots, as the server's default has it, instead of one a slot")
    p.add_argument("--binary", default=os.environ.get("LLAMA_SERVER", NATIVE if os.path.exists(NATIVE) else ""))
    p.add_argument("--wheel", action="store_true", help="the prebuilt wheel although a native server is here")
    args, args.more = p.parse_known_args()
    if not os.path.exists(args.model):
        sys.exit(f"serve_llamacpp: no file {args.model}; fetch_models.sh lays the models out")
    (native if args.binary and not args.wheel else wheel)(args)


if __name__ == "__main__":
    main()

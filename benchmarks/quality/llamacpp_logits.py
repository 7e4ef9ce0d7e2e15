#!/usr/bin/env python3
"""llama.cpp's own logits of every position, through its C API: the peer of `headrace_logits`, with the same streams.

Usage: llamacpp_logits.py MODEL.gguf --lib FOLDER [--threads N] [--ubatch N] < windows > logits        needs: numpy
       llamacpp_logits.py MODEL.gguf --lib FOLDER --tokenize < text > ids        int32, without BOS and EOS
stdin   [int32 count][count int32 ids] a window, each a fresh sequence; stdout: count * V float32 a window
FOLDER holds libllama and the libggml-cpu variants: benchmarks/peers/install_peers.sh llamacpp-engine puts them under build/peers.

Everything but the thread count stays as llama-server has it: f16 KV, flash attention auto, batches of 2048, micro-batches of 512, weights repacked. The
library picks its CPU variant itself. The parameter structs are passed as opaque blobs, larger than the library's, of which only the first four fields
are written (n_ctx, n_batch, n_ubatch, n_seq_max) and then read back; so no header is needed and a library that moved them is refused.
"""
import argparse
import ctypes
import glob
import os
import sys

import numpy as np

CONTEXT, BATCH = 4096, 2048


class Blob(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8)), ("spare", ctypes.c_uint64 * 8)]


POINTER, INT, TEXT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
SIGNATURES = {  # name: result, arguments
    "llama_backend_init": (None, []), "llama_model_default_params": (Blob, []), "llama_context_default_params": (Blob, []),
    "llama_model_load_from_file": (POINTER, [TEXT, Blob]), "llama_init_from_model": (POINTER, [POINTER, Blob]),
    "llama_model_get_vocab": (POINTER, [POINTER]), "llama_vocab_n_tokens": (INT, [POINTER]), "llama_set_n_threads": (None, [POINTER, INT, INT]),
    "llama_free": (None, [POINTER]), "llama_synchronize": (None, [POINTER]),
    "llama_n_ctx": (ctypes.c_uint32, [POINTER]), "llama_n_batch": (ctypes.c_uint32, [POINTER]), "llama_n_ubatch": (ctypes.c_uint32, [POINTER]),
    "llama_n_seq_max": (ctypes.c_uint32, [POINTER]),
    "llama_batch_init": (Batch, [INT, INT, INT]), "llama_decode": (INT, [POINTER, Batch]), "llama_get_logits": (ctypes.POINTER(ctypes.c_float), [POINTER]),
    "llama_get_memory": (POINTER, [POINTER]), "llama_memory_clear": (None, [POINTER, ctypes.c_bool]), "llama_print_system_info": (TEXT, []),
    "llama_log_set": (None, [POINTER, POINTER]),
    "llama_tokenize": (INT, [POINTER, TEXT, INT, ctypes.POINTER(INT), INT, ctypes.c_bool, ctypes.c_bool]),
}


def open_library(folder):
    """libllama with its result and argument types; loads the CPU variant that suits this machine."""
    def load(pattern):
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if not found:
            raise ValueError(f"{folder} has no {pattern}: install_peers.sh llamacpp-engine puts the library under build/peers")
        return ctypes.CDLL(found[-1], mode=ctypes.RTLD_GLOBAL)

    load("libggml-base.so*")
    ggml, lib = load("libggml.*so*"), load("libllama.*so*")
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    ggml.ggml_backend_load_all_from_path.argtypes = [TEXT]
    ggml.ggml_backend_load_all_from_path.restype = None
    return ggml, lib


class LlamaCpp:
    """One model, one context, one thread."""

    def __init__(self, model, folder, threads, ubatch=512):
        self.threads, self.context = threads, None
        ggml, self.lib = open_library(folder)
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, TEXT, POINTER)(self._log)
        self.lib.llama_log_set(ctypes.cast(self.log, POINTER), None)
        ggml.ggml_backend_load_all_from_path(folder.encode())
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {model}; LLAMACPP_LOG=1 says why")
        self.vocabulary = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.batch = self.lib.llama_batch_init(BATCH, 0, 1)
        self.open_context(CONTEXT, ubatch, 1)

    def open_context(self, tokens, ubatch, sequences):
        """Replaces the context: `tokens` of KV cache over all `sequences`."""
        if self.context:
            self.lib.llama_free(self.context)
        wanted = [tokens, BATCH, ubatch, sequences]
        params = self.lib.llama_context_default_params()
        params.words[0:4] = wanted
        self.context = self.lib.llama_init_from_model(self.model, params)
        readers = (self.lib.llama_n_ctx, self.lib.llama_n_batch, self.lib.llama_n_ubatch, self.lib.llama_n_seq_max)
        got = [read(self.context) for read in readers] if self.context else None
        if got != wanted:
            raise ValueError(f"this libllama keeps its sizes elsewhere (asked for {wanted}, got {got}): use the version of install_peers.sh")
        self.lib.llama_set_n_threads(self.context, self.threads, self.threads)

    def _log(self, level, text, _):
        if os.environ.get("LLAMACPP_LOG"):
            sys.stderr.write(text.decode(errors="replace"))

    def logits(self, ids):
        """[T, V] of a fresh sequence, valid until the next call. REQUIRES: len(ids) <= BATCH."""
        self.clear()
        self.decode([(token, i, 0, True) for i, token in enumerate(ids)])
        return np.ctypeslib.as_array(self.lib.llama_get_logits(self.context), (len(ids), self.vocabulary))

    def tokenize(self, text):
        """int32 ids of UTF-8 bytes, without BOS and EOS; control tokens are plain text."""
        out = np.empty(len(text) + 2, np.int32)
        pointer = out.ctypes.data_as(ctypes.POINTER(INT))
        count = self.lib.llama_tokenize(self.lib.llama_model_get_vocab(self.model), text, len(text), pointer, len(out), False, False)
        if count < 0:
            raise ValueError(f"llama_tokenize gave {count}")
        return out[:count]

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def decode(self, rows):
        """One batch of (token, position, sequence, whether its logits are wanted), waited for."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i], self.batch.logits[i] = int(token), position, 1, wanted
            self.batch.seq_id[i][0] = sequence
        status = self.lib.llama_decode(self.context, self.batch)
        if status:
            raise ValueError(f"llama_decode gave {status}")
        self.lib.llama_synchronize(self.context)

    def about(self):
        variants = {os.path.basename(line.split()[-1]) for line in open("/proc/self/maps") if "libggml-cpu" in line}
        return f"{', '.join(sorted(variants))}; {self.lib.llama_print_system_info().decode()}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--lib", required=True)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ubatch", type=int, default=512)
    p.add_argument("--tokenize", action="store_true")
    args = p.parse_args()
    engine = LlamaCpp(args.model, os.path.abspath(args.lib), args.threads, args.ubatch)
    print(engine.about(), file=sys.stderr, flush=True)
    if args.tokenize:
        sys.stdout.buffer.write(engine.tokenize(sys.stdin.buffer.read()).astype("<i4").tobytes())
        return
    while head := sys.stdin.buffer.read(4):
        count = int.from_bytes(head, "little")
        if not 0 < count <= BATCH:
            raise ValueError(f"a window of {count} tokens: 1 to {BATCH} are possible")
        ids = np.frombuffer(sys.stdin.buffer.read(4 * count), dtype="<i4")
        sys.stdout.buffer.write(engine.logits(ids).tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as e:
        sys.exit(f"llamacpp_logits: {e}")

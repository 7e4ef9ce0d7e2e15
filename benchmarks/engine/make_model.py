#!/usr/bin/env python3
"""Makes a GGUF of a known shape with seeded random weights: enough to time an engine, and a 7B in a minute instead of a download.

Usage: make_model.py SHAPE TYPE OUT.gguf [--seed N] [--context N]        needs: numpy, gguf (requirements.txt)
  SHAPE  smollm2-135m, qwen2.5-0.5b (without its biases, as architecture llama), mistral-7b, tiny
  TYPE   Q4_0, Q4_1, Q8_0, Q4_K; a matrix whose rows are no multiple of 256 has Q5_0 in place of Q4_K, as llama-quantize does it

The quants are random bytes and the scales make each weight about 1 / sqrt(columns) large, so that activations stay numbers. There is no tokenizer
(tokenizer.ggml.model = no_vocab). Tensors are made and written one after another: the largest one is what it takes of memory.
"""
import argparse
import os
import sys

import gguf
import numpy as np

SHAPES = {  # layers, width, ffn, heads, kv heads, vocabulary, tied head, rope base
    "smollm2-135m": (30, 576, 1536, 9, 3, 49152, True, 1e5),
    "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 151936, True, 1e6),
    "mistral-7b": (32, 4096, 14336, 32, 8, 32768, False, 1e6),
    "tiny": (2, 256, 512, 4, 2, 1024, True, 1e4),
}
BLOCK_ROWS = 1 << 22  # blocks made at once


def halves(rng, n, scale):
    """`n` positive f16 numbers around `scale`, as bytes."""
    return (scale * (0.5 + rng.random(n, dtype=np.float32))).astype(np.float16).view(np.uint8).reshape(n, 2)


def random_bytes(rng, n, count):
    return np.frombuffer(rng.bytes(n * count), dtype=np.uint8).reshape(n, count)


def q4_0(rng, n, size):  # d, 32 nibbles - 8
    return [halves(rng, n, size / 4.6), random_bytes(rng, n, 16)]


def q4_1(rng, n, size):  # d, m, 32 nibbles; m = -7.5 d
    d = halves(rng, n, size / 4.6)
    m = (d.view(np.float16).astype(np.float32) * -7.5).astype(np.float16).view(np.uint8).reshape(n, 2)
    return [d, m, random_bytes(rng, n, 16)]


def q5_0(rng, n, size):  # d, 32 high bits, 32 nibbles
    return [halves(rng, n, size / 9.2), random_bytes(rng, n, 4), random_bytes(rng, n, 16)]


def q8_0(rng, n, size):  # d, 32 bytes
    return [halves(rng, n, size / 74), random_bytes(rng, n, 32)]


def q4_k(rng, n, size):  # d, dmin, 8 scales and mins of 6 bits, 256 nibbles; scales and mins are 32 on average
    return [halves(rng, n, size / (4.6 * 32)), halves(rng, n, size * 7.5 / (4.6 * 32)), random_bytes(rng, n, 12), random_bytes(rng, n, 128)]


TYPES = {"Q4_0": (q4_0, 32, 18), "Q4_1": (q4_1, 32, 20), "Q5_0": (q5_0, 32, 22), "Q8_0": (q8_0, 32, 34), "Q4_K": (q4_k, 256, 144)}


def type_for(wanted, columns):
    return wanted if columns % TYPES[wanted][1] == 0 else "Q5_0"


def matrix(rng, kind, rows, columns):
    """The bytes of a [rows, columns] matrix."""
    make, elements, size = TYPES[kind]
    blocks = rows * columns // elements
    out = np.empty((blocks, size), dtype=np.uint8)
    for first in range(0, blocks, BLOCK_ROWS):
        n = min(BLOCK_ROWS, blocks - first)
        np.concatenate(make(rng, n, columns**-0.5), axis=1, out=out[first : first + n])
    return out.reshape(rows, -1)


def tensors(shape, wanted):
    """Name, rows, columns and type of each; a vector has 0 rows and F32."""
    layers, width, ffn, heads, kv_heads, vocabulary, tied, _ = SHAPES[shape]
    kv = width // heads * kv_heads
    yield "token_embd.weight", vocabulary, width, type_for(wanted, width)
    yield "output_norm.weight", 0, width, "F32"
    if not tied:
        yield "output.weight", vocabulary, width, type_for(wanted, width)
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", 0, width, "F32"
        yield f"blk.{layer}.ffn_norm.weight", 0, width, "F32"
        for name, rows, columns in (("attn_q", width, width), ("attn_k", kv, width), ("attn_v", kv, width), ("attn_output", width, width),
                                    ("ffn_gate", ffn, width), ("ffn_up", ffn, width), ("ffn_down", width, ffn)):
            yield f"blk.{layer}.{name}.weight", rows, columns, type_for(wanted, columns)


def describe(writer, shape, wanted, context):
    layers, width, ffn, heads, kv_heads, vocabulary, _, base = SHAPES[shape]
    writer.add_name(f"{shape} {wanted}, random weights")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("no_vocab")


def write(path, shape, wanted, seed, context):
    writer = gguf.GGUFWriter(path, "llama")
    describe(writer, shape, wanted, context)
    rng = np.random.default_rng(seed)
    listed = list(tensors(shape, wanted))
    for name, rows, columns, kind in listed:
        if rows == 0:
            writer.add_tensor_info(name, (columns,), np.dtype(np.float32), columns * 4)
        else:
            _, elements, size = TYPES[kind]
            row_bytes = columns // elements * size
            writer.add_tensor_info(name, (rows, row_bytes), np.dtype(np.uint8), rows * row_bytes, gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, rows, columns, kind in listed:
        writer.write_tensor_data(np.ones(columns, np.float32) if rows == 0 else matrix(rng, kind, rows, columns))
    writer.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("type", choices=[t for t in TYPES if t != "Q5_0"])
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--context", type=int, default=8192)
    args = p.parse_args()
    partial = args.out + ".part"
    write(partial, args.shape, args.type, args.seed, args.context)
    os.replace(partial, args.out)
    print(f"{args.out}: {os.path.getsize(args.out) / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes a small model of seeded weights as a Hugging Face checkpoint of 8-bit floats.

  seeded_float8.py FOLDER [--type F8_E4M3 | F8_E5M2] [--scales block | row | tensor | none] [--family llama | qwen3] [--seed N]

Widths are no multiples of 128, so that blocks end inside a matrix. Linear layers are 8-bit floats, embedding, norms and head are F32. numpy alone.
"""
import argparse
import json
import os

import numpy as np

import hf_folder

LARGEST = {"F8_E4M3": 448.0, "F8_E5M2": 57344.0}
WIDTH, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 160, 288, 2, 4, 2, 48, 320
QUANTISATION = {"block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
                "row": {"quant_method": "compressed-tensors", "format": "float-quantized"},
                "tensor": {"quant_method": "compressed-tensors", "format": "float-quantized"}, "none": None}


def encode(values, kind):
    """The nearest byte of each value; a tie goes to the smaller one."""
    byte = np.arange(128, dtype=np.uint8)
    size = hf_folder.DECODE[kind](byte)
    size = size[np.isfinite(size)]  # they rise with the byte
    at = np.searchsorted((size[1:] + size[:-1]) / 2, np.abs(values))
    return at.astype(np.uint8) | np.where(np.signbit(values), 128, 0).astype(np.uint8)


def scales_of(values, kind, largest):
    """Of a tensor ([]), of rows ([R, 1]) or of blocks: what makes the largest size of each the type's largest."""
    rows, columns = values.shape
    if kind == "tensor":
        return (np.abs(values).max() / largest).astype(np.float32).reshape(())
    if kind == "row":
        return (np.abs(values).max(1, keepdims=True) / largest).astype(np.float32)
    starts = [np.arange(0, n, hf_folder.BLOCK) for n in (rows, columns)]
    return (np.maximum.reduceat(np.maximum.reduceat(np.abs(values), starts[0], 0), starts[1], 1) / largest).astype(np.float32)


def tensors(family, dtype, kind, seed):
    """{name: (dtype, shape, bytes)}."""
    draw, out = np.random.default_rng(seed), {}

    def plain(name, values):
        out[name] = "F32", list(values.shape), values.astype("<f4").tobytes()

    def linear(name, rows, columns):
        # Rows and blocks of many sizes: a scale that belongs elsewhere shows.
        size = np.exp(draw.normal(0, 0.7, (rows, 1)) + draw.normal(0, 0.7, (1, columns)))
        values = draw.normal(0, 1, (rows, columns)) * size / np.sqrt(np.mean(size**2) * columns)
        if kind != "none":
            scales = scales_of(values, kind, LARGEST[dtype])
            plain(name + ("_scale_inv" if kind == "block" else "_scale"), scales)
            values = values / hf_folder.spread(scales, values.shape)
        out[name] = dtype, [rows, columns], encode(values, dtype).tobytes()

    plain("model.embed_tokens.weight", draw.normal(0, 1, (VOCABULARY, WIDTH)))
    plain("model.norm.weight", draw.uniform(0.5, 1.5, WIDTH))
    plain("lm_head.weight", draw.normal(0, 1, (VOCABULARY, WIDTH)) / np.sqrt(WIDTH))
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        plain(at + "input_layernorm.weight", draw.uniform(0.5, 1.5, WIDTH))
        plain(at + "post_attention_layernorm.weight", draw.uniform(0.5, 1.5, WIDTH))
        if family == "qwen3":
            plain(at + "self_attn.q_norm.weight", draw.uniform(0.5, 1.5, HEAD_DIM))
            plain(at + "self_attn.k_norm.weight", draw.uniform(0.5, 1.5, HEAD_DIM))
        for name, rows, columns in (("self_attn.q_proj", HEADS * HEAD_DIM, WIDTH), ("self_attn.k_proj", KV_HEADS * HEAD_DIM, WIDTH),
                                    ("self_attn.v_proj", KV_HEADS * HEAD_DIM, WIDTH), ("self_attn.o_proj", WIDTH, HEADS * HEAD_DIM),
                                    ("mlp.gate_proj", FFN, WIDTH), ("mlp.up_proj", FFN, WIDTH), ("mlp.down_proj", WIDTH, FFN)):
            linear(f"{at}{name}.weight", rows, columns)
    return out


def write(folder, family="llama", dtype="F8_E4M3", kind="block", seed=1):
    os.makedirs(folder, exist_ok=True)
    config = {"model_type": family, "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCABULARY, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "quantization_config": QUANTISATION[kind]}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    header, at, data = {}, 0, b""
    for name, (stored, shape, raw) in tensors(family, dtype, kind, seed).items():
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at, data = at + len(raw), data + raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--type", choices=sorted(LARGEST), default="F8_E4M3")
    p.add_argument("--scales", choices=sorted(QUANTISATION), default="block")
    p.add_argument("--family", choices=("llama", "qwen3"), default="llama")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    write(args.folder, args.family, args.type, args.scales, args.seed)


if __name__ == "__main__":
    main()

"""A Hugging Face folder for the oracle: config.json and model.safetensors, read by numpy alone, given under GGUF's names.

Weights of 8-bit floats (F8_E4M3, F8_E5M2) are multiplied by the scales that lie beside them as X_scale_inv or X_scale: one for the tensor, one for each row,
or one for each block of 128 x 128. Families: llama, qwen2, qwen3.
"""
import json
import os

import numpy as np

FAMILIES = ("llama", "qwen2", "qwen3")
BLOCK = 128  # rows and columns of one scale
LAYER_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
               "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def e4m3_values():
    """What each byte of F8_E4M3 is: sign, 4 bits of exponent with a bias of 7, 3 of mantissa; no infinity, and NaN where all seven bits are set (OCP, 2023)."""
    byte = np.arange(256)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent.astype(float) - 7))
    size[(byte & 127) == 127] = np.nan
    return np.where(byte & 128, -size, size).astype(np.float32)


E4M3 = e4m3_values()
DECODE = {"F32": lambda raw: raw.view("<f4"), "F16": lambda raw: raw.view("<f2").astype(np.float32),
          "BF16": lambda raw: (raw.view("<u2").astype("<u4") << 16).view("<f4"),
          "F8_E4M3": lambda raw: E4M3[raw],
          "F8_E5M2": lambda raw: (raw.astype("<u2") << 8).view("<f2").astype(np.float32)}  # the upper half of an F16


def read_safetensors(path):
    """{name: (dtype, float32 array)} of one file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = np.frombuffer(f.read(), np.uint8)
    out = {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        if tensor["dtype"] not in DECODE:
            raise ValueError(f"tensor {name} has type {tensor['dtype']}, which is not known here")
        begin, end = tensor["data_offsets"]
        out[name] = tensor["dtype"], DECODE[tensor["dtype"]](data[begin:end]).reshape(tensor["shape"])
    return out


def spread(scales, shape):
    """Scales of a tensor, of its rows or of its blocks, as an array that multiplies a weight of `shape`."""
    rows, columns = shape
    if scales.size == 1:
        return scales.reshape(1, 1)
    if scales.shape in ((rows,), (rows, 1)):
        return scales.reshape(rows, 1)
    if scales.shape != (-(-rows // BLOCK), -(-columns // BLOCK)):
        raise ValueError(f"scales of shape {scales.shape} for a weight of {shape}")
    return np.repeat(np.repeat(scales, BLOCK, 0), BLOCK, 1)[:rows, :columns]


def weights_of(tensors):
    """Tensors by GGUF's names, 8-bit floats multiplied out."""
    out = {}
    for name, (dtype, values) in tensors.items():
        if name.endswith(("_scale", "_scale_inv")):
            continue
        scales = next((tensors[name + suffix][1] for suffix in ("_scale_inv", "_scale") if name + suffix in tensors), None)
        if dtype.startswith("F8") and scales is not None:
            values = values * spread(scales, values.shape)
        out[gguf_name(name)] = values
    return out


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    parts = stem.split(".", 3)
    if parts[:2] != ["model", "layers"] or len(parts) < 4 or parts[3] not in LAYER_NAMES:
        raise ValueError(f"tensor {name} is not known here")
    return f"blk.{parts[2]}.{LAYER_NAMES[parts[3]]}.{kind}"


class Field:
    """As the gguf package has one."""

    def __init__(self, value):
        self.value = value

    def contents(self):
        return self.value


class Folder:
    """What llama_fp32.Llama asks of a reader: `fields` and `weights`. GGUF's llama files have their rows of q and k permuted for neighbouring pairs,
    folders have not."""

    def __init__(self, path):
        with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        arch = config["model_type"]
        if arch not in FAMILIES:
            raise ValueError(f"model_type {arch!r} is not known here, only {', '.join(FAMILIES)}")
        rope = config.get("rope_parameters") or {}
        scaling = config.get("rope_scaling") or rope
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        pairs = {"block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"], "attention.head_count": heads,
                 "attention.head_count_kv": config.get("num_key_value_heads", heads), "attention.key_length": head_dim, "rope.dimension_count": head_dim,
                 "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": rope.get("rope_theta", config.get("rope_theta", 10000.0)),
                 "rope.scaling.type": "none" if kind == "default" else kind, "rope.scaling.factor": scaling.get("factor", 1.0),
                 "rope.scaling.low_freq_factor": scaling.get("low_freq_factor", 1.0), "rope.scaling.high_freq_factor": scaling.get("high_freq_factor", 4.0),
                 "rope.scaling.original_context_length": scaling.get("original_max_position_embeddings", 8192)}
        self.fields = {"general.architecture": Field(arch)} | {f"{arch}.{key}": Field(value) for key, value in pairs.items()}
        self.weights = weights_of(read_safetensors(os.path.join(path, "model.safetensors")))
        if config.get("tie_word_embeddings", True):
            self.weights.pop("output.weight", None)

#!/usr/bin/env python3
"""Makes the goldens of src/model/families_test.cc: a tiny seeded model of each family as a Hugging Face folder, and the logits that transformers computes.

  make_family_goldens.py FOLDER      writes FOLDER/NAME/{config.json, model.safetensors, golden.safetensors}

Needs transformers, torch (CPU) and safetensors; run once, the results are checked in. golden.safetensors holds `ids` (one sequence, I32) and `logits`
[T, V] in float32. All weights are drawn, norms and biases too, so large that a norm, a window or a multiplier that is left out moves the logits by far
more than the tolerance. They are stored as F16 and computed from those values in float32, keys and values too.
"""
import argparse
import json
import os

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.granite import GraniteConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.phi3 import Phi3Config
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

TOKENS = 40
SHAPE = dict(hidden_size=64, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=96, max_position_embeddings=64,
             pad_token_id=None, bos_token_id=1, eos_token_id=2)
SHORT, LONG = [1 + 0.05 * i for i in range(8)], [1 + 0.8 * i for i in range(8)]
LONG_ROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG)

# Each number is unlike what its absence would mean.
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, num_hidden_layers=2, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="llama3", rope_theta=5000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)),
    "mistral": MistralConfig(**SHAPE, num_hidden_layers=2, head_dim=32, sliding_window=16),
    "qwen2": Qwen2Config(**SHAPE, num_hidden_layers=2, tie_word_embeddings=True),
    "qwen2_window": Qwen2Config(**SHAPE, num_hidden_layers=2, use_sliding_window=True, sliding_window=16, max_window_layers=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)),
    "qwen3": Qwen3Config(**SHAPE, num_hidden_layers=2, head_dim=32, tie_word_embeddings=True),
    "gemma3": Gemma3TextConfig(**SHAPE | dict(hidden_size=32), num_hidden_layers=7, head_dim=16, query_pre_attn_scalar=24, sliding_window=16, rope_parameters=dict(
        full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0), sliding_attention=dict(rope_type="default", rope_theta=1e4))),
    "phi3": Phi3Config(**SHAPE, num_hidden_layers=2, sliding_window=16),
    "phi3_short": Phi3Config(**SHAPE, num_hidden_layers=2, original_max_position_embeddings=48, rope_parameters=dict(
        **LONG_ROPE, original_max_position_embeddings=48)),
    "phi3_long": Phi3Config(**SHAPE, num_hidden_layers=2, original_max_position_embeddings=16, rope_parameters=dict(
        **LONG_ROPE, original_max_position_embeddings=16)),
    "granite": GraniteConfig(**SHAPE, num_hidden_layers=2, embedding_multiplier=6.0, attention_multiplier=0.4, residual_multiplier=0.22,
                             logits_scaling=3.0),
}


def model_of(config, seed):
    """Seeded, with weights that float16 holds exactly, in float32."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight += 0.5 * torch.randn_like(weight).clamp(-1.5, 1.5)
            elif name.endswith("bias"):
                weight.copy_(0.5 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * (0.5 if "embed" in name else 1.5 / weight.shape[1] ** 0.5))
            weight.copy_(weight.half().float())
    return model


# Said by no file that the engine reads, or by all.
NOISE = ("transformers_version", "dtype", "id2label", "label2id", "_name_or_path", "problem_type", "return_dict", "chunk_size_feed_forward")


def write(folder, name, config, seed):
    model = model_of(config, seed)
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, config.vocab_size, (1, TOKENS)))
    with torch.no_grad():
        logits = model(ids).logits[0]
    place = os.path.join(folder, name)
    os.makedirs(place, exist_ok=True)
    settings = config.to_dict() | {"architectures": [type(model).__name__]}
    for key in NOISE:
        settings.pop(key, None)
    with open(os.path.join(place, "config.json"), "w") as out:
        json.dump(settings, out, indent=1, sort_keys=True)
        out.write("\n")
    weights = {n: w.half().contiguous() for n, w in model.state_dict().items() if not (n == "lm_head.weight" and config.tie_word_embeddings)}
    save_file(weights, os.path.join(place, "model.safetensors"))
    save_file({"ids": ids[0].to(torch.int32), "logits": logits.contiguous()}, os.path.join(place, "golden.safetensors"))
    print(f"{name}: logits {logits.min():.2f} … {logits.max():.2f}, spread {logits.std():.2f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    folder = p.parse_args().folder
    for seed, (name, config) in enumerate(CONFIGS.items()):
        write(folder, name, config, seed + 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Turn a llama or gemma3 GGUF file into a Hugging Face folder (bf16 safetensors, config.json, tokenizer.json) for peers that read no GGUF.

Usage: gguf_to_hf.py MODEL.gguf OUT_DIR          needs: install_peers.sh load
The weights are the dequantised ones, so an answer can be compared with the GGUF file's; their size in memory is that of bf16.
"""
import json
import os
import sys

import gguf
import numpy as np

LLAMA_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
GEMMA3_NAMES = LLAMA_NAMES | {
    "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}


def to_bf16(x):
    """Rounds float32 to the nearest even bf16, as raw uint16."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def unpermute(w, heads):
    """Undoes the row order that llama.cpp gives the Q and K of the llama architecture (pairs of a head side by side)."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def hf_name(name, names):
    part = name.split(".")
    if part[0] == "blk":
        return f"model.layers.{part[1]}.{names[part[2]]}.{part[3]}"
    return {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[part[0]] + "." + part[1]


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(data.shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for data in tensors.values():
            f.write(data.tobytes())


def sentencepiece_merges(tokens, scores, kinds):
    """Every way to split a piece into two pieces, best-scored piece first: the merge list that gives SentencePiece's result."""
    ids = {t: i for i, t in enumerate(tokens)}
    out = []
    for token, score, kind in zip(tokens, scores, kinds):
        if kind != 1 or len(token) < 2:
            continue
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
        out += [(score, a, b) for a, b in sorted(pairs, key=lambda p: (ids[p[0]], ids[p[1]]))]
    out.sort(key=lambda m: -m[0])
    return [[a, b] for _, a, b in out]


def tokenizer_json(get):
    tokens, kinds = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": k == 3}
               for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (3, 4)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)}}
    top = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "post_processor": None}
    if get("tokenizer.ggml.model") == "gpt2":
        if get("tokenizer.ggml.pre") != "smollm":
            sys.exit(f"gguf_to_hf: pre-tokenizer {get('tokenizer.ggml.pre')!r} is not known here, only 'smollm'")
        model["merges"] = [m.split(" ", 1) for m in get("tokenizer.ggml.merges")]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        top["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]}
        top["decoder"] = byte_level | {"add_prefix_space": True}
    else:
        model |= {"unk_token": tokens[get("tokenizer.ggml.unknown_token_id")], "fuse_unk": True, "byte_fallback": True}
        model["merges"] = sentencepiece_merges(tokens, get("tokenizer.ggml.scores"), kinds)
        top["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        top["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        top["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                          {"type": "ByteFallback"}, {"type": "Fuse"}]}
        bos = get("tokenizer.ggml.bos_token_id")
        text = lambda which: {"Sequence": {"id": which, "type_id": 0}}
        mark = {"SpecialToken": {"id": tokens[bos], "type_id": 0}}
        top["post_processor"] = {"type": "TemplateProcessing", "single": [mark, text("A")], "pair": [mark, text("A"), text("B")],
                                 "special_tokens": {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}}}
    return top | {"model": model}


def config_json(arch, get, tied, vocab):
    a = lambda key, default=None: get(f"{arch}.{key}", default)
    heads, width, layers = a("attention.head_count"), a("embedding_length"), a("block_count")
    config = {
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": a("feed_forward_length"), "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": a("attention.head_count_kv"), "head_dim": a("attention.key_length", width // heads),
        "max_position_embeddings": a("context_length"), "rms_norm_eps": a("attention.layer_norm_rms_epsilon"), "rope_theta": a("rope.freq_base", 10000.0),
        "tie_word_embeddings": tied, "attention_bias": False, "torch_dtype": "bfloat16",
        "bos_token_id": get("tokenizer.ggml.bos_token_id"), "eos_token_id": get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": get("tokenizer.ggml.padding_token_id"),
    }
    if arch == "llama":
        return config | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "mlp_bias": False}
    return config | {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": config["head_dim"], "sliding_window": a("attention.sliding_window"), "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "attention_dropout": 0.0,
        "layer_types": ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)],
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    get = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
    arch = get("general.architecture")
    if arch not in ("llama", "gemma3"):
        sys.exit(f"gguf_to_hf: architecture {arch!r} is not known here, only llama and gemma3")
    names = LLAMA_NAMES if arch == "llama" else GEMMA3_NAMES
    os.makedirs(out, exist_ok=True)
    tensors = {}
    for t in reader.tensors:
        if t.name == "rope_freqs.weight":
            continue
        w = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        if arch == "llama" and t.name.split(".")[-2] in ("attn_q", "attn_k"):
            w = unpermute(w, get("llama.attention.head_count" if ".attn_q." in t.name else "llama.attention.head_count_kv"))
        if arch == "gemma3" and t.name.endswith("norm.weight"):
            w = w - 1  # GGUF stores 1 + weight
        tensors[hf_name(t.name, names)] = to_bf16(w)
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)
    tokens = get("tokenizer.ggml.tokens")
    save = lambda name, data: json.dump(data, open(os.path.join(out, name), "w", encoding="utf-8"), ensure_ascii=False, indent=1)
    config = config_json(arch, get, "lm_head.weight" not in tensors, len(tokens))
    save("config.json", config)
    save("generation_config.json", {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id")})
    save("tokenizer.json", tokenizer_json(get))
    of = lambda key: tokens[get(f"tokenizer.ggml.{key}_token_id")]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": of("bos"), "eos_token": of("eos"), "unk_token": of("unknown"),
                "pad_token": of("padding"), "clean_up_tokenization_spaces": False, "model_max_length": config["max_position_embeddings"]}
    if get("tokenizer.chat_template"):
        settings["chat_template"] = get("tokenizer.chat_template")
    save("tokenizer_config.json", settings)
    print(f"{out}: {len(tensors)} tensors, {sum(t.nbytes for t in tensors.values()) / 1e6:.0f} MB of bf16")


if __name__ == "__main__":
    main()

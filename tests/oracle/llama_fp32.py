#!/usr/bin/env python3
"""The fp32 oracle of llama and its relatives (FAMILIES below): numpy, dequantised weights, nothing clever. What the engine's logits are judged against.

  llama_fp32.py MODEL.gguf --ids FILE --out FILE      ids: raw int32; out: logits [T, V] of every position, .npy or raw float32
  llama_fp32.py MODEL.gguf --chat "What is the capital of France?" --greedy 16      text in, text out, for a look by eye
  llama_fp32.py MODEL.gguf --ids FILE --greedy 16     prints the ids that greedy decoding adds

MODEL is a GGUF file, or a Hugging Face folder (hf_folder.py: 8-bit floats with scales among them).
Needs the packages of requirements.txt beside it (numpy; gguf for files, tokenizers for text). Follows ggml where an architecture leaves a choice: the rope of
llama and granite pairs neighbours (2i, 2i + 1), because the GGUF converter has permuted Q and K for it, that of the others pairs (i, i + n/2); one KV
head serves heads / kv_heads query heads in order; the head is tied to the embedding where there is no output.weight; Gemma's embeddings are scaled by
the float32 sqrt(width). A sliding window is applied wherever the file names one. Everything is float32 but for the angles of the rope, which are
float64: a float32 angle of position 8,000 is wrong by 5e-4 already.
"""
import argparse
import os
import sys

import numpy as np

import hf_folder

BLOCK_TOKENS = 128  # rows of one pass: the logits of a block of a 49,152-word vocabulary are 25 MB
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "phi3", "granite")
SYSTEM = "You are a helpful assistant."  # SmolLM2's own default makes "the capital of France" nearly a tie


class Metadata:
    """Typed access to a GGUF file's key-value pairs, those of the architecture without its prefix."""

    def __init__(self, reader):
        self.fields = reader.fields
        self.arch = self.get("general.architecture")

    def get(self, key, default=None):
        return self.fields[key].contents() if key in self.fields else default

    def own(self, key, default=None):
        value = self.get(f"{self.arch}.{key}", default)
        if value is None:
            raise ValueError(f"the file has no {self.arch}.{key}")
        return value


def rope_frequencies(meta, dims, factors, long_rope=False):
    """Radians a position of each rotated pair, float64 [dims / 2]. REQUIRES: `factors` is rope_freqs.weight, one of LongRoPE's lists, or None.

    Linear scaling stretches positions by its factor. Llama 3's scaling comes either as the converter's rope_freqs tensor, which divides each frequency,
    or as metadata, where the tensor's values are computed here by the rule of the model's release.
    """
    base = meta.get(f"{meta.arch}.rope.freq_base", 1e6 if meta.arch == "gemma3" else 10000.0)
    frequency = base ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    kind = "none" if long_rope else meta.get(f"{meta.arch}.rope.scaling.type", "linear")  # ggml's default: a factor without a type is linear
    factor = meta.get(f"{meta.arch}.rope.scaling.factor", meta.get(f"{meta.arch}.rope.scale_linear", 1.0)) or 1.0
    if factors is not None:
        frequency = frequency / factors.astype(np.float64)
    elif kind == "llama3":
        frequency = frequency / llama3_factors(meta, frequency, factor)
    if kind == "linear":
        frequency = frequency / factor
    if kind not in ("none", "linear", "llama3"):
        raise ValueError(f"rope scaling {kind!r} is not known here")
    return frequency


def llama3_factors(meta, frequency, factor):
    """What Llama 3.1 divides each frequency by: 1 for short waves, `factor` for long ones, a ramp between."""
    low = meta.get(f"{meta.arch}.rope.scaling.low_freq_factor", 1.0)
    high = meta.get(f"{meta.arch}.rope.scaling.high_freq_factor", 4.0)
    context = meta.own("rope.scaling.original_context_length", 8192)
    wave = 2 * np.pi / frequency
    smooth = np.clip((context / wave - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def gelu(x):
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))


def silu(x):
    with np.errstate(over="ignore"):  # exp(-x) may be inf: the quotient is then the right zero
        return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def read_gguf(path):
    """The reader of a file, and what gives its weights: read once the header is known to be one that is computed here."""
    import gguf  # a folder needs numpy alone

    reader = gguf.GGUFReader(path)
    return reader, lambda: {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}


def read_folder(path):
    folder = hf_folder.Folder(path)
    return folder, lambda: folder.weights


class Llama:
    """A model in memory and the KV cache of one sequence. One thread. Invariant: `keys` and `values` hold `past` positions of every block.

    `context` is how many positions shall be served: LongRoPE alone asks.
    """

    def __init__(self, path, context=0):
        reader, weights = read_folder(path) if os.path.isdir(path) else read_gguf(path)
        self.meta = meta = Metadata(reader)
        if meta.arch not in FAMILIES:
            raise ValueError(f"architecture {meta.arch!r} is not known here, only {', '.join(FAMILIES)}")
        if meta.get(f"{meta.arch}.expert_count", 0):
            raise ValueError("mixtures of experts are not known here")
        self.blocks = meta.own("block_count")
        self.width = meta.own("embedding_length")
        self.heads = meta.own("attention.head_count")
        self.kv_heads = meta.own("attention.head_count_kv", self.heads)
        self.head_dim = meta.own("attention.key_length", self.width // self.heads)
        self.rope_dims = meta.own("rope.dimension_count", self.head_dim)
        self.epsilon = meta.own("attention.layer_norm_rms_epsilon")
        self.weights = weights()
        self.head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        self.vocabulary = self.head.shape[0]
        self.interleaved = meta.arch in ("llama", "granite") and not isinstance(reader, hf_folder.Folder)
        self.gate = gelu if meta.arch == "gemma3" else silu
        self.embedding_scale = np.float32(np.sqrt(self.width) if meta.arch == "gemma3" else meta.get(f"{meta.arch}.embedding_scale", 1.0))
        self.residual_scale = np.float32(meta.get(f"{meta.arch}.residual_scale", 1.0))
        self.logit_scale = np.float32(1 / meta.get(f"{meta.arch}.logit_scale", 1.0))
        self.attention_scale = np.float32(meta.get(f"{meta.arch}.attention.scale", 1 / np.sqrt(self.head_dim)))
        self.set_windows()
        self.set_ropes(context)
        self.reset()

    def set_windows(self):
        """The last positions that each block sees, its own included; 0: all."""
        window = self.meta.get(f"{self.meta.arch}.attention.sliding_window", 0)
        pattern = self.meta.get(f"{self.meta.arch}.attention.sliding_window_pattern", 6) if self.meta.arch == "gemma3" else 0
        self.windows = [0 if pattern and (block + 1) % pattern == 0 else window for block in range(self.blocks)]

    def set_ropes(self, context):
        """Of the blocks that see everything and of those with a window: frequencies, and what stands before sine and cosine."""
        meta, factors, magnitude = self.meta, self.weights.get("rope_freqs.weight"), 1.0
        long_rope = "rope_factors_long.weight" in self.weights
        if long_rope:
            original, trained = meta.own("rope.scaling.original_context_length"), meta.own("context_length")
            factors = self.weights[f"rope_factors_{'long' if context > original else 'short'}.weight"]
            magnitude = meta.get(f"{meta.arch}.rope.scaling.attn_factor", 0.0) or np.sqrt(1 + np.log(trained / original) / np.log(original))
        self.frequency = rope_frequencies(meta, self.rope_dims, factors, long_rope)
        self.magnitude = np.float64(magnitude)
        self.window_frequency = self.frequency
        if meta.arch == "gemma3":
            base = meta.get("gemma3.rope.freq_base_swa", 10000.0)
            self.window_frequency = base ** (-np.arange(0, self.rope_dims, 2, dtype=np.float64) / self.rope_dims)

    def reset(self):
        self.past = 0
        shape = (self.kv_heads, 0, self.head_dim)
        self.keys = [np.zeros(shape, np.float32) for _ in range(self.blocks)]
        self.values = [np.zeros(shape, np.float32) for _ in range(self.blocks)]

    def cut(self, past):
        """Forgets all but the first `past` positions. REQUIRES: past <= self.past."""
        self.past = past
        self.keys, self.values = ([x[:, :past] for x in cache] for cache in (self.keys, self.values))

    def logits(self, ids):
        """[T, V] float32 for a fresh sequence of `ids`; position i has seen ids 0 … i."""
        self.reset()
        ids = np.asarray(ids, dtype=np.int64)
        out = np.empty((len(ids), self.vocabulary), np.float32)
        for at in range(0, len(ids), BLOCK_TOKENS):
            out[at:at + BLOCK_TOKENS] = self.forward(ids[at:at + BLOCK_TOKENS])
        return out

    def greedy(self, ids, count, stop=()):
        """Up to `count` ids, each the most likely one (lowest id in a tie); ends before an id of `stop`."""
        last, out = self.logits(ids)[-1], []
        while len(out) < count:
            token = int(np.argmax(last))
            if token in stop:
                break
            out.append(token)
            last = self.forward(np.array([token]))[-1]
        return out

    def forward(self, ids):
        """Appends `ids` to the sequence; their logits [T, V]."""
        return self.append(ids) @ self.head.T * self.logit_scale

    def append(self, ids):
        """Appends `ids` to the sequence; what the head makes logits of, [T, width]."""
        if ids.min() < 0 or ids.max() >= self.vocabulary:
            raise ValueError(f"an id lies outside 0 … {self.vocabulary - 1}")
        x = self.weights["token_embd.weight"][ids] * self.embedding_scale
        position = np.arange(self.past, self.past + len(ids), dtype=np.float64)[:, None]
        for block in range(self.blocks):
            angle = position * (self.window_frequency if self.windows[block] else self.frequency)
            cos, sin = (self.magnitude * np.cos(angle)).astype(np.float32), (self.magnitude * np.sin(angle)).astype(np.float32)
            added = self.attention(block, self.norm(block, "attn_norm", x), cos, sin)
            x = x + self.norm(block, "post_attention_norm", added) * self.residual_scale
            added = self.feed_forward(block, self.norm(block, "ffn_norm", x))
            x = x + self.norm(block, "post_ffw_norm", added) * self.residual_scale
        self.past += len(ids)
        return rms_norm(x, self.weights["output_norm.weight"], self.epsilon)

    def norm(self, block, name, x):
        """`x` itself where the model has no such norm."""
        weight = self.weights.get(f"blk.{block}.{name}.weight")
        return x if weight is None else rms_norm(x, weight, self.epsilon)

    def attention(self, block, x, cos, sin):
        q, k, v = self.projections(block, x)
        q = self.rotate(self.norm(block, "attn_q_norm", q), cos, sin)
        k = self.rotate(self.norm(block, "attn_k_norm", k), cos, sin)
        self.keys[block] = k = np.concatenate([self.keys[block], k], axis=1)
        self.values[block] = v = np.concatenate([self.values[block], v], axis=1)
        group = self.heads // self.kv_heads
        window = self.windows[block] or k.shape[1]
        first = max(0, self.past - window + 1)  # no row of these sees an earlier one: 16,000 tokens take a third of the time
        k, v = k[:, first:], v[:, first:]
        ago = self.past + np.arange(len(x))[:, None] - first - np.arange(k.shape[1])[None, :]
        allowed = (ago >= 0) & (ago < window)
        mixed = np.empty((len(x), self.heads, self.head_dim), np.float32)
        for head in range(self.heads):
            scores = q[head] @ k[head // group].T * self.attention_scale
            mixed[:, head] = softmax(np.where(allowed, scores, np.float32(-np.inf))) @ v[head // group]
        return self.linear(block, "attn_output", mixed.reshape(len(x), -1))

    def feed_forward(self, block, x):
        if f"blk.{block}.ffn_gate.weight" in self.weights:
            gate, up = self.linear(block, "ffn_gate", x), self.linear(block, "ffn_up", x)
        else:
            gate, up = np.split(self.linear(block, "ffn_up", x), 2, axis=-1)
        return self.linear(block, "ffn_down", self.gate(gate) * up)

    def projections(self, block, x):
        """q, k and v, each [heads, T, head_dim]."""
        if f"blk.{block}.attn_qkv.weight" in self.weights:
            borders = np.cumsum([self.heads, self.kv_heads]) * self.head_dim
            parts = np.split(self.linear(block, "attn_qkv", x), borders, axis=-1)
        else:
            parts = [self.linear(block, name, x) for name in ("attn_q", "attn_k", "attn_v")]
        return [part.reshape(len(x), -1, self.head_dim).swapaxes(0, 1) for part in parts]

    def rotate(self, x, cos, sin):
        """Turns each pair of the first rope_dims by its position's angle."""
        n = self.rope_dims
        firsts, seconds = (slice(0, n, 2), slice(1, n, 2)) if self.interleaved else (slice(0, n // 2), slice(n // 2, n))
        out = x.copy()
        out[..., firsts] = x[..., firsts] * cos - x[..., seconds] * sin
        out[..., seconds] = x[..., firsts] * sin + x[..., seconds] * cos
        return out

    def linear(self, block, name, x):
        y = x @ self.weight(block, name).T
        bias = self.weights.get(f"blk.{block}.{name}.bias")
        return y if bias is None else y + bias

    def weight(self, block, name):
        return self.weights[f"blk.{block}.{name}.weight"]


def tokenizer(meta):
    """The `tokenizers` object for a byte-level BPE vocabulary as SmolLM2's. The digits' rule is its own, so other pre-tokenizers are refused."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if (meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")) != ("gpt2", "smollm"):
        raise ValueError("only the vocabulary gpt2 / smollm is known here: give --ids")
    tokens, kinds = meta.get("tokenizer.ggml.tokens"), meta.get("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ", 1)) for m in meta.get("tokenizer.ggml.merges")]
    out = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    digits, levels = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.pre_tokenizer, out.decoder = pre_tokenizers.Sequence([digits, levels]), decoders.ByteLevel()
    out.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, kinds) if kind == 3])
    return out


def chat_text(user, system=SYSTEM):
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    return turn.format("system", system) + turn.format("user", user) + "<|im_start|>assistant\n"


def read_ids(path):
    ids = np.fromfile(path, dtype="<i4")
    if not len(ids):
        raise ValueError(f"{path} holds no ids")
    return ids


def save(path, logits):
    if path.endswith(".npy"):
        np.save(path, logits)
    else:
        logits.astype("<f4").tofile(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--ids", help="raw int32 token ids")
    p.add_argument("--chat", help="a user's message, put into ChatML")
    p.add_argument("--text", help="plain text")
    p.add_argument("--out", help="where the logits go")
    p.add_argument("--greedy", type=int, default=0, metavar="N", help="decode N tokens")
    args = p.parse_args()
    if (args.ids is None) + (args.chat is None) + (args.text is None) != 2 or not (args.out or args.greedy):
        p.error("give one of --ids, --chat, --text, and --out or --greedy")
    model = Llama(args.model)
    words = None if args.ids else tokenizer(model.meta)
    ids = read_ids(args.ids) if args.ids else words.encode(chat_text(args.chat) if args.chat else args.text).ids
    if args.out:
        save(args.out, model.logits(ids))
    if args.greedy:
        new = model.greedy(ids, args.greedy, stop=(model.meta.get("tokenizer.ggml.eos_token_id", -1),))
        print(words.decode(new) if words else " ".join(map(str, new)))


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as e:
        sys.exit(f"llama_fp32: {e}")

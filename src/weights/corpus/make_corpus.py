# Makes the seeds of the fuzz targets, a few hundred bytes each; kinds.gguf is read by a test too.
# Run: python3 make_corpus.py   (needs numpy and gguf)
import json
import pathlib
import struct

import gguf
import numpy as np

here = pathlib.Path(__file__).parent


def write_gguf(name, fill):
    writer = gguf.GGUFWriter(str(here / "gguf" / name), "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def kinds(w):
    w.add_context_length(128)
    w.add_rope_freq_base(10000.0)
    w.add_token_list(["a", "b", "é"])
    w.add_token_scores([0.0, -1.5, -2.0])
    w.add_token_types([1, 1, 6])
    w.add_add_bos_token(True)
    w.add_tensor("output_norm.weight", np.array([1, 2, 3, 4], dtype=np.float32))
    w.add_tensor("blk.0.ffn_up.weight", gguf.quants.quantize(np.arange(64, dtype=np.float32).reshape(2, 32),
                                                             gguf.GGMLQuantizationType.Q8_0),
                 raw_dtype=gguf.GGMLQuantizationType.Q8_0)


def aligned(w):
    w.add_custom_alignment(64)
    w.add_tensor("a", np.zeros((2, 2), dtype=np.float16))


write_gguf("kinds.gguf", kinds)
write_gguf("aligned.gguf", aligned)

header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                     "b": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [8, 14]}}).encode()
(here / "safetensors" / "two.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(14))
index = json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "s.safetensors"}}).encode()
(here / "safetensors" / "index").write_bytes(b"i" + index)

# Makes dequantize.golden: a few blocks of every computable type and the floats that the Python package `gguf` reads
# from them. Record: type name (8 bytes, NUL-padded), block count (u32), block bytes, float32 values; little-endian.
# Run: python3 make_dequantize_golden.py   (needs numpy and gguf)
import pathlib
import struct

import gguf
import numpy as np

BLOCKS = 3
# Where each block keeps its halves: they get finite values of a usual size, the rest is random bytes.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0]}

rng = np.random.default_rng(20)
out = b""
for name in ["F32", "F16", "BF16", *HALVES]:
    qtype = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = BLOCKS * 16 if elements == 1 else BLOCKS
    data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
    if elements == 1:
        data = np.array(rng.normal(size=blocks), dtype=np.float32)
        data = data.view(np.uint8) if name == "F32" else (
            data.astype(np.float16).view(np.uint8) if name == "F16" else data.view(np.uint8).reshape(-1, 4)[:, 2:].copy())
        data = data.reshape(1, -1)
    else:
        for at in HALVES[name]:
            data[:, at:at + 2] = rng.normal(scale=0.05, size=(blocks, 1)).astype(np.float16).view(np.uint8)
        data = data.reshape(1, -1)
    values = gguf.quants.dequantize(data, qtype).astype("<f4")
    assert values.size == blocks * elements and np.isfinite(values).all()
    out += name.encode().ljust(8, b"\0") + struct.pack("<I", blocks) + data.tobytes() + values.tobytes()


def add(name, data, values):
    global out
    assert np.isfinite(values).all()
    out += name.encode().ljust(8, b"\0") + struct.pack("<I", len(data)) + data.tobytes() + values.astype("<f4").tobytes()


# A scale of MXFP4 is one byte, a power of two; the least two are no normal floats.
data = rng.integers(0, 256, (6, 17), dtype=np.uint8)
data[:, 0] = [0, 1, 2, 127, 130, 120]
add("MXFP4", data, gguf.quants.dequantize(data.reshape(1, -1), gguf.GGMLQuantizationType.MXFP4))
# Every finite 8-bit float, by its definition: sign, exponent (subnormal when 0), mantissa.
for name, exponent_bits, bias, specials in [("F8_E4M3", 4, 7, {0x7F}), ("F8_E5M2", 5, 15, {0x7C, 0x7D, 0x7E, 0x7F})]:
    codes = np.array([c for c in range(256) if c & 0x7F not in specials], dtype=np.uint8)
    mantissa_bits = 7 - exponent_bits
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes.astype(int) >> mantissa_bits) & (2**exponent_bits - 1)
    fraction = (codes & (2**mantissa_bits - 1)) / 2.0**mantissa_bits
    add(name, codes, sign * np.where(exponent == 0, fraction * 2.0**(1 - bias), (1 + fraction) * 2.0**(exponent - bias)))
(pathlib.Path(__file__).parent / "dequantize.golden").write_bytes(out)

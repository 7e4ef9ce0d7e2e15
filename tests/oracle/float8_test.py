#!/usr/bin/env python3
"""Goal: checkpoints of 8-bit floats answer as the oracle says, for both types and every kind of scale: the oracle multiplies weights and scales out, by
numpy and from the definition of the types. A scale that is left out or belongs to another row shows.

Needs numpy and headrace_logits (HEADRACE_LOGITS); skips, and says so, where one is missing.
"""
import os
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.environ.get("HEADRACE_LOGITS", os.path.join(ROOT, "build", "release", "headrace_logits"))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def python_with_numpy():
    """Goes on in a Python that has numpy: this one, or that of ./dev setup."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        python = os.environ.get("HEADRACE_PYTHON", os.path.join(ROOT, "build", "venv", "bin", "python"))
        if os.environ.get("HEADRACE_ORACLE_REEXEC") or not os.access(python, os.X_OK):
            skip("the Python package numpy is missing; ./dev setup installs it")
        os.environ["HEADRACE_ORACLE_REEXEC"] = "1"
        os.execv(python, [python, *sys.argv])


python_with_numpy()
if not os.access(PROGRAM, os.X_OK):
    skip("no headrace_logits; build it, or set HEADRACE_LOGITS")

import numpy as np  # noqa: E402  (there only now)

import hf_folder  # noqa: E402
import llama_fp32  # noqa: E402
import seeded_float8  # noqa: E402

IDS = np.random.default_rng(7).integers(0, seeded_float8.VOCABULARY, 100).astype("<i4")
# Of the logits' size, root of mean squares. Products of these weights are of floats, so what is left is the KV cache's 16 bits and the order of sums:
# 1e-4 at most. One scale that is wrong costs a hundred times as much.
TOLERANCE = 2e-4


def engine(folder):
    done = subprocess.run([PROGRAM, folder, "--threads", "2"], input=len(IDS).to_bytes(4, "little") + IDS.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, "<f4").reshape(len(IDS), -1)


def distance(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))


class Float8(unittest.TestCase):
    def test_every_type_and_scale_agrees(self):
        for family in ("llama", "qwen3"):
            for dtype in ("F8_E4M3", "F8_E5M2"):
                for kind in ("block", "row", "tensor", "none"):
                    with self.subTest(family=family, dtype=dtype, kind=kind), tempfile.TemporaryDirectory() as folder:
                        seeded_float8.write(folder, family, dtype, kind)
                        error = distance(engine(folder), llama_fp32.Llama(folder).logits(IDS))
                        print(f"{family} {dtype} {kind}: {error:.1e}")
                        self.assertLess(error, TOLERANCE)

    def test_one_wrong_scale_shows(self):
        with tempfile.TemporaryDirectory() as folder:
            seeded_float8.write(folder)
            ours, model = engine(folder), llama_fp32.Llama(folder)
            model.weights["blk.1.ffn_down.weight"] = model.weights["blk.1.ffn_down.weight"].copy()
            model.weights["blk.1.ffn_down.weight"][128:, 256:] *= 1.5  # one block
            self.assertGreater(distance(ours, model.logits(IDS)), 10 * TOLERANCE)


class Types(unittest.TestCase):
    """Goal: the bytes are what the types' definition says."""

    def test_e4m3(self):
        for byte, value in ((0x00, 0), (0x01, 2**-9), (0x07, 7 * 2**-9), (0x08, 2**-6), (0x38, 1), (0x3C, 1.5), (0x7E, 448), (0xB8, -1)):
            self.assertEqual(hf_folder.E4M3[byte], value)
        self.assertTrue(np.isnan(hf_folder.E4M3[[0x7F, 0xFF]]).all())

    def test_e5m2(self):
        decoded = hf_folder.DECODE["F8_E5M2"](np.array([0x00, 0x01, 0x3C, 0x3E, 0x7B, 0xBC], np.uint8))
        self.assertEqual(decoded.tolist(), [0, 2**-16, 1, 1.5, 57344, -1])

    def test_encoding_takes_the_nearest(self):
        for dtype, largest in seeded_float8.LARGEST.items():
            values = hf_folder.DECODE[dtype](seeded_float8.encode(np.array([largest, -largest, 1.0, 1.1, 1e9]), dtype))
            self.assertEqual(values[:3].tolist(), [largest, -largest, 1])
            self.assertLess(abs(values[3] - 1.1), 0.16)
            self.assertEqual(values[4], largest)


if __name__ == "__main__":
    unittest.main()

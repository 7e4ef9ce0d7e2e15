#!/usr/bin/env python3
"""Checks of the oracle itself. Usage: oracle_test.py [MODEL.gguf]; without a model the parts that need one are skipped, and say so."""
import sys
import unittest

import numpy as np

import llama_fp32

MODEL = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1].endswith(".gguf") else None


class Field:
    def __init__(self, value):
        self.value = value

    def contents(self):
        return self.value


class Header:
    def __init__(self, **pairs):
        self.fields = {"general.architecture": Field("llama")} | {"llama." + k.replace("__", "."): Field(v) for k, v in pairs.items()}


class Rope(unittest.TestCase):
    """Goal: each way a file can ask for stretched positions gives the frequencies of its definition."""

    def frequency(self, factors=None, **pairs):
        return llama_fp32.rope_frequencies(llama_fp32.Metadata(Header(**pairs)), 8, factors)

    def test_plain(self):
        np.testing.assert_allclose(self.frequency(rope__freq_base=10000.0), [1, 0.1, 0.01, 0.001])

    def test_linear_with_and_without_its_type(self):
        np.testing.assert_allclose(self.frequency(rope__scaling__type="linear", rope__scaling__factor=4.0), [0.25, 0.025, 0.0025, 0.00025])
        np.testing.assert_allclose(self.frequency(rope__scaling__factor=4.0), [0.25, 0.025, 0.0025, 0.00025])

    def test_tensor_divides(self):
        np.testing.assert_allclose(self.frequency(np.array([1, 2, 4, 8], np.float32)), [1, 0.05, 0.0025, 0.000125])

    def test_llama3_leaves_short_waves_and_divides_long_ones(self):
        got = self.frequency(rope__freq_base=500000.0, rope__scaling__type="llama3", rope__scaling__factor=8.0)
        plain = self.frequency(rope__freq_base=500000.0)
        # waves of 6, 167, 4443 and 118142 tokens against 8192: untouched above 4 turns, an eighth below 1, between them on the ramp
        turns = 8192 * plain[2] / (2 * np.pi)
        smooth = (turns - 1) / 3
        np.testing.assert_allclose(got, [plain[0], plain[1], plain[2] * ((1 - smooth) / 8 + smooth), plain[3] / 8])

    def test_unknown_scaling_is_refused(self):
        with self.assertRaises(ValueError):
            self.frequency(rope__scaling__type="yarn")


@unittest.skipUnless(MODEL, "no model named")
class Model(unittest.TestCase):
    """Goal: the cache and the blocks change nothing, and the model says what it is known to say."""

    @classmethod
    def setUpClass(cls):
        cls.model = llama_fp32.Llama(MODEL)

    def test_steps_equal_one_pass(self):
        ids = np.arange(500, 514) * 31
        whole = self.model.logits(ids)
        self.model.reset()
        steps = np.concatenate([self.model.forward(ids[i:i + 1]) for i in range(len(ids))])
        np.testing.assert_allclose(steps, whole, atol=2e-3)

    def test_blocks_equal_one_pass(self):
        ids = np.arange(1000, 1000 + llama_fp32.BLOCK_TOKENS + 7)
        self.model.reset()
        np.testing.assert_allclose(self.model.logits(ids)[-7:], (self.model.reset(), self.model.forward(ids)[-7:])[1], atol=2e-3)

    def test_capital(self):
        if self.model.meta.arch == "gemma3":  # a base model; the ids of "The capital of France is the city of" and " Paris" by sentencepiece
            return self.assertEqual(self.model.greedy([2, 818, 5279, 529, 7001, 563, 506, 3207, 529], 1), [9079])
        words = llama_fp32.tokenizer(self.model.meta)
        ids = words.encode(llama_fp32.chat_text("What is the capital of France?")).ids
        self.assertIn("Paris", words.decode(self.model.greedy(ids, 16, stop=(2,))))


if __name__ == "__main__":
    unittest.main()

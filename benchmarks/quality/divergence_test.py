#!/usr/bin/env python3
"""Checks of divergence.py on distributions whose answer is known."""
import unittest

import numpy as np

import divergence


class Divergence(unittest.TestCase):
    def test_kl_of_two_coins_ignores_a_shift_of_the_logits(self):
        p, q = np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
        rows = divergence.compare_logits(np.log(p) + 7, np.log(q) - 90, np.array([0]))
        self.assertAlmostEqual(rows["kl"][0], 0.5 * np.log(2) + 0.5 * np.log(2 / 3))
        self.assertAlmostEqual(rows["nll"][0], np.log(4))

    def test_equal_logits_have_no_divergence(self):
        x = np.random.default_rng(1).normal(size=(200, 50)).astype(np.float32)
        rows = divergence.compare_logits(x, x, np.zeros(200, int))
        self.assertEqual(rows["kl"].max(), 0)
        self.assertEqual(rows["top1"].mean(), 1)

    def test_verdict_needs_the_whole_interval(self):
        rng = np.random.default_rng(2)
        theirs = {"kl": rng.gamma(2, 0.01, 4096), "top1": np.ones(4096)}
        self.assertTrue(divergence.paired(theirs, theirs)["excludes_loss"])
        self.assertTrue(divergence.paired({"kl": theirs["kl"] * 0.8, "top1": np.ones(4096)}, theirs)["excludes_loss"])
        self.assertFalse(divergence.paired({"kl": theirs["kl"] * 1.05, "top1": np.ones(4096)}, theirs)["excludes_loss"])
        noisy = {"kl": theirs["kl"] * 1.008 * rng.lognormal(-0.5, 1, 4096), "top1": np.ones(4096)}
        self.assertFalse(divergence.paired(noisy, theirs)["excludes_loss"])

    def test_perplexity_change_is_the_ratio_of_perplexities(self):
        base = np.random.default_rng(3).gamma(2, 1, 4096)
        change = divergence.perplexity_change({"nll": base + np.log(1.01)}, {"nll": base})
        self.assertAlmostEqual(change["change"], 0.01)
        self.assertAlmostEqual(change["bootstrap_95"][0], 0.01)


if __name__ == "__main__":
    unittest.main()

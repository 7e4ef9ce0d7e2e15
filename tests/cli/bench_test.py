"""Goal: bench engine measures a model of any tokenizer, or none, in every format, and says what it cannot do."""

import csv
import io
import json

from harness import CliTest, main

QUICK = ("--prompt", "8", "--batch", "1,2", "--depth", "0,2048", "--repeat", "1", "--threads", "1")


class Bench(CliTest):
    def test_formats(self):
        path = self.tiny("base.gguf", "base")
        # The engine knows no tokenizer.
        path.write_bytes(path.read_bytes().replace(b"gpt2", b"none"))
        text = self.ok("bench", "engine", "base", *QUICK)
        for part in ("| prompt of 8 |", "generation, 2 sequences, depth 0", "| int8: ", "Left out: 1 at depth 2048: the model's context is 128"):
            self.assertIn(part, text)
        report = json.loads(self.ok("bench", "engine", "base", *QUICK, "--format", "json"))
        self.assertEqual([(r["prompt"], r["batch"], r["depth"]) for r in report["rows"]], [(8, 0, 0), (0, 1, 0), (0, 2, 0)])
        self.assertTrue(all(r["tokens_s"]["median"] > 0 and r["tokens_s"]["count"] == 1 for r in report["rows"]))
        rows = list(csv.DictReader(io.StringIO(self.ok("bench", "engine", "base", *QUICK, "--format", "csv"))))
        self.assertEqual([r["what"] for r in rows[:3]], ["prompt", "generation", "generation"])

    def test_probe_needs_no_model(self):
        probes = {p["unit"] for p in json.loads(self.ok("bench", "engine", "--probe", "--repeat", "1", "--format", "json"))["probes"]}
        self.assertEqual(probes, {"GB/s", "GOP/s"})

    def test_mistakes(self):
        self.assertIn("headrace bench engine", self.refused(2, "bench"))
        self.assertIn("headrace bench calibrate", self.refused(2, "bench", "server"))
        for flag, value in (("--prompt", "0"), ("--batch", "1,,2"), ("--depth", "-1"), ("--batch", "9" * 30), ("--batch", "1025"), ("--prompt", "1048577"), ("--depth", "1048577"), ("--prompt", "1," * 20 + "1")):
            self.assertIn(f"{flag}: ", self.refused(2, "bench", "engine", flag, value))
        self.assertIn("--format", self.refused(2, "bench", "engine", "--format", "xml"))
        self.refused(3, "bench", "engine", "nowhere.gguf")
        self.assertIn("not a script", self.refused(2, "bench", "engine", "script:x.json"))


main()

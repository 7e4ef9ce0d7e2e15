"""Goal: run takes the sampling flags that people know, in every layer, with the API's ranges; each reaches the answer."""

import json

from harness import CliTest, main

SCRIPT = {"step_ms": 0, "replies": [{"pieces": ["The", " quick", " br", "own", " fox"]}]}
FLAGS = ("temperature", "top-k", "top-p", "min-p", "presence-penalty", "frequency-penalty", "repetition-penalty", "seed", "stop", "max-tokens")


class Run(CliTest):
    def setUp(self):
        super().setUp()
        (self.root / "model.json").write_text(json.dumps(SCRIPT))
        self.script = f"script:{self.root / 'model.json'}"

    def answer(self, *flags, env=None):
        return self.ok("run", self.script, "hi", *flags, env=env).rstrip("\n")

    def test_stop_strings_and_length(self):
        self.assertEqual(self.answer(), "The quick brown fox")
        self.assertEqual(self.answer("--stop", "own"), "The quick br")
        self.assertEqual(self.answer("--stop", "never", "--stop", "quick"), "The ")
        self.assertEqual(self.answer("--max-tokens", "2"), "The quick")
        # One word each: what follows is the prompt, not another stop string.
        self.assertEqual(self.ok("run", "--stop", "own", self.script, "fox"), "The quick br\n")

    def test_every_layer(self):
        path = self.root / "h.toml"
        path.write_text('stop = ["fox", "own"]\n')
        self.assertEqual(self.answer("--config", str(path)), "The quick br")
        self.assertEqual(self.answer("--config", str(path), env={"HEADRACE_STOP": "nothing, quick"}), "The")
        self.assertEqual(self.answer(env={"HEADRACE_MAX_TOKENS": "1"}), "The")

    def test_every_flag_is_there_and_completed(self):
        everything = [word for flag in FLAGS for word in (f"--{flag}", "x" if flag == "stop" else "1")]
        self.assertEqual(self.ok("run", self.script, "hi", *everything), "The\n")
        for text in (self.ok("run", "--help"), self.ok("completion", "bash"), self.ok("--help", "all")):
            for flag in FLAGS:
                self.assertIn(f"--{flag}", text)

    def test_ranges(self):
        for flag, value, says in (("temperature", "2.1", "from 0 to 2"), ("top-p", "-0.1", "from 0 to 1"), ("min-p", "2", "from 0 to 1"),
                                  ("presence-penalty", "3", "from -2 to 2"), ("frequency-penalty", "-3", "from -2 to 2"),
                                  ("repetition-penalty", "0", "from 0.001 to 10"), ("top-k", "-2", "from -1 to 9223372036854775807"),
                                  ("max-tokens", "0", "from 1 to 9223372036854775807"), ("seed", "x", "a whole number")):
            with self.subTest(flag):
                line = self.refused(2, "run", self.script, "hi", f"--{flag}={value}")
                self.assertIn(says, line)
                self.assertEqual(line.count("\n"), 1)
        self.assertIn("'stop[0]' is empty", self.refused(2, "run", self.script, "hi", "--stop", ""))
        path = self.root / "h.toml"
        path.write_text("\ntemperature = 9\n")
        self.assertIn("line 2: temperature: '9' must be a number from 0 to 2", self.refused(2, "config", "check", "--config", str(path)))


main()

"""Goal: a model loads or is refused with a reason: too little memory is exit 4 before any is used, a packed model that was kept is used only when all
of it is right."""

import os
import resource
import time
import unittest

from harness import CliTest, main

MIB = 1 << 20
KEEP_AFTER_SECONDS = 2.2  # a model file that was changed later than two seconds ago is not kept packed


class Loading(CliTest):
    def answer(self, *more):
        done = self.run_program("run", "base", "abc", "--temperature", "0", "--max-tokens", "3", *more)
        self.assertEqual((done.returncode, done.stdout), (0, "ccc\n"), done.stderr)
        return [line for line in done.stderr.splitlines() if " warning " in line]

    def test_a_packed_model_is_kept_and_checked(self):
        self.tiny("base.gguf", "base")
        packs = self.root / "packs"
        flag = ("--pack-cache", str(packs))
        (line,) = self.answer(*flag)
        self.assertIn("less than two seconds ago", line)
        self.assertEqual(list(packs.glob("*")) if packs.exists() else [], [])
        time.sleep(KEEP_AFTER_SECONDS)
        self.assertEqual(self.answer(*flag), [])
        (kept,) = packs.glob("*")
        good = kept.read_bytes()
        self.assertEqual(self.answer(*flag), [])
        for broken, said in ((good[:-1], "bytes and should have"), (good[:-9] + b"x" + good[-8:], "are damaged"), (b"", "no head")):
            kept.write_bytes(broken)
            lines = self.answer(*flag)
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(said, lines[0])
            self.assertEqual(kept.read_bytes(), good)
        with self.served("base", *flag) as ask:
            self.assertEqual(ask("/v1/completions", {"model": "base", "prompt": "abc", "max_tokens": 2, "temperature": 0})[1]["choices"][0]["text"], "cc")
        self.assertEqual(list(packs.glob("*")), [kept])

    def test_a_folder_for_packed_models_that_cannot_be(self):
        self.tiny("base.gguf", "base")
        time.sleep(KEEP_AFTER_SECONDS)
        (self.root / "file").write_text("")
        lines = self.answer("--pack-cache", str(self.root / "file"))
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("packed weights are not kept (cannot create", lines[0])

    def limited(self, megabytes, *arguments):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (megabytes * MIB, megabytes * MIB))

        return self.run_program(*arguments, preexec_fn=limit)

    @unittest.skipIf("ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ, "a sanitizer needs all of the address space")
    def test_a_limit_of_the_address_space_is_exit_4(self):
        self.tiny("base.gguf", "base")
        for command in (["run", "base", "abc"], ["serve", "base", "--port", "0"]):
            for megabytes in (400, 600, 1000, 2000):
                with self.subTest(command=command, megabytes=megabytes):
                    done = self.limited(megabytes, *command, "--kv-memory", "2GiB")
                    self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertRegex(done.stderr, "MiB are free|not enough memory|no memory for")


main()

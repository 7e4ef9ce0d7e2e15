"""Goal: --cache-dir keeps prompts through restarts and kills, under a key of the user's that lies elsewhere; what cannot be
used is said once and served without; wrong flags are refused."""

import hashlib
import http.client
import json
import os
import signal
import stat
import subprocess
import tempfile

from harness import HEADRACE, CliTest, main

PROMPT = list(range(97, 117)) * 50  # 1,000 tokens, 15 whole blocks


class Server:
    def __init__(self, test, *flags):
        self.log = tempfile.TemporaryFile(mode="w+")
        test.addCleanup(self.log.close)
        self.process = subprocess.Popen([HEADRACE, "serve", f"script:{test.script}", "--port", "0", *flags], stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, cwd=test.root / "cwd", env=test.environment())
        test.addCleanup(self.process.kill)
        self.port = int(self.process.stdout.readline().split(" ")[2].rsplit(":", 1)[1])
        while self.ask("/ready")[0] != 200:
            test.assertIsNone(self.process.poll(), "the server ended before it was ready")

    def ask(self, path, body=None, key="any"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def complete(self, prompt):
        """Text and prompt tokens from the cache."""
        status, text = self.ask("/v1/completions", {"model": "model", "prompt": prompt, "max_tokens": 5})
        assert status == 200, text
        answer = json.loads(text)
        return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def metric(self, name):
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith((f"headrace_prefix_cache_tier_{name}{{", f"headrace_prefix_cache_{name} ", f"headrace_prefix_cache_{name}{{")):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def wait_for_blocks(self, count):
        while self.metric("spilled_blocks_total") < count:
            assert self.process.poll() is None

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        output = self.process.communicate(timeout=60)[0]
        self.log.seek(0)
        return output, self.log.read()


class Cache(CliTest):
    def setUp(self):
        super().setUp()
        self.script = self.root / "model.json"
        self.script.write_text('{"replies": [{"pieces": ["ab"], "repeat": 100}]}')
        self.cache = self.root / "cache"

    def flags(self):
        return ["--cache-dir", str(self.cache), "--cache-disk", "1GiB"]

    def test_a_prompt_is_pinned_for_who_may(self):
        keys = self.root / "keys.toml"
        keys.write_text("".join(f'[[keys]]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\ncache_retention = {may}\n'
                                for key, may in (("yes", "true"), ("no", "false"))))
        server = Server(self, "--api-key-file", str(keys), *self.flags())
        body = {"model": "model", "prompt": PROMPT, "max_tokens": 5, "prompt_cache_key": "manual", "prompt_cache_retention": "1h"}
        for path, extra, key, status, pinned in (
                ("/v1/completions", {}, "no", 200, 0),
                ("/v1/completions", {"prompt_cache_retention": "7d"}, "yes", 400, 0),
                ("/v1/completions", {}, "yes", 200, 15),
                ("/v1/chat/completions", {"prompt": None, "messages": [{"role": "user", "content": "word " * 200}]}, "yes", 200, 15)):
            request = {name: value for name, value in {**body, **extra}.items() if value is not None}
            with self.subTest(path=path, extra=extra, key=key):
                got, text = server.ask(path, request, key)
                self.assertEqual(got, status, text)
                (self.assertGreater if "chat" in path else self.assertEqual)(server.metric("pinned_blocks"), pinned)
                if status == 400:
                    self.assertEqual(json.loads(text)["error"]["param"], "prompt_cache_retention")
        self.assertEqual(server.metric("pins_refused_total"), 0)
        while server.metric("tier_pinned_blocks") < 15:  # of the disk, as they are written
            self.assertIsNone(server.process.poll())

    def test_a_prompt_outlives_the_server(self):
        server = Server(self, *self.flags())
        text, cached = server.complete(PROMPT)
        self.assertEqual(cached, 0)
        server.wait_for_blocks(15)
        self.assertIn("cache disk 1024 MiB = 16777216 tokens (0 there)", server.stop()[0])
        key = self.root / "home" / ".local" / "state" / "headrace" / "deployment.key"
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        server = Server(self, *self.flags())
        self.assertEqual(server.complete(PROMPT), (text, 15 * 64))
        self.assertEqual(server.metric("hit_blocks_total"), 15)
        server.stop(signal.SIGKILL)
        server = Server(self, *self.flags())
        self.assertEqual(server.complete(PROMPT), (text, 15 * 64))
        server.stop()
        os.remove(key)
        server = Server(self, *self.flags())
        self.assertEqual(server.complete(PROMPT), (text, 0))
        self.assertIn("of another model, version or key", server.stop()[1])

    def test_damaged_files_are_computed_and_said_once(self):
        server = Server(self, *self.flags())
        text = server.complete(PROMPT)[0]
        server.wait_for_blocks(15)
        server.stop()
        files = [path for path in self.cache.rglob("*") if path.is_file() and path.stat().st_size > 0]
        self.assertEqual(len(files), 15)
        for number, path in enumerate(files):
            content = bytearray(path.read_bytes())
            content[number * 50] ^= 1
            path.write_bytes(content)
        server = Server(self, *self.flags())
        for _ in range(2):
            self.assertEqual(server.complete(PROMPT)[0], text)
        self.assertGreater(server.metric("damaged_blocks_total"), 0)
        self.assertLessEqual(server.stop()[1].count("it is computed instead"), 1)

    def test_a_folder_that_cannot_be_used_is_said_and_served_without(self):
        self.cache.write_text("a file")
        server = Server(self, *self.flags())
        self.assertEqual(server.complete(PROMPT)[1], 0)
        self.assertEqual(server.metric("unusable"), 1)
        self.assertEqual(server.stop()[1].count("serving without it"), 1)
        self.cache.unlink()
        first = Server(self, *self.flags())
        second = Server(self, *self.flags())
        self.assertEqual(second.complete(PROMPT)[1], 0)
        self.assertIn("another server of the same model uses it", second.stop()[1])
        first.stop()

    def test_memory_holds_what_the_pool_gives_up(self):
        server = Server(self, "--cache-memory", "1MiB")
        text = server.complete(PROMPT)[0]
        for seed in range(5):
            server.complete([100 + (seed * 7 + token * token) % 20 for token in range(3000)])
        self.assertEqual(server.complete(PROMPT), (text, 15 * 64))
        self.assertGreater(server.metric("hit_blocks_total"), 0)
        server.stop()

    def refused_with(self, code, *flags):
        done = self.run_program("serve", f"script:{self.script}", "--port", "0", *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr.splitlines()[-1]

    def test_wrong_flags(self):
        self.assertIn("beside what it protects", self.refused_with(2, *self.flags(), "--cache-key-file", str(self.cache / "key")))
        self.assertIn("--prefix-cache on", self.refused_with(2, *self.flags(), "--prefix-cache", "off"))
        self.assertIn("--cache-disk is smaller than one block", self.refused_with(2, *self.flags(), "--cache-disk", "1KiB"))
        self.assertIn("--cache-memory is smaller than one block", self.refused_with(2, "--cache-memory", "100"))
        key = self.root / "key"
        key.write_text("headrace-key-1 " + "00" * 32)
        key.chmod(0o644)
        self.assertIn("others may read it", self.refused_with(1, *self.flags(), "--cache-key-file", str(key)))
        key.write_text("secret")
        key.chmod(0o600)
        self.assertIn("no key of this program", self.refused_with(1, *self.flags(), "--cache-key-file", str(key)))


if __name__ == "__main__":
    main()

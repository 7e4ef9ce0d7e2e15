"""Runs the binary in a folder and an environment of its own. Standard library only."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HEADRACE, MAKE_TINY = (str(Path(name).absolute()) for name in sys.argv[1:3])


class CliTest(unittest.TestCase):
    """Each test has an empty home, models folder and working folder; nothing of the user's reaches the program."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace-cli-")
        self.addCleanup(self.scratch.cleanup)
        self.root = Path(self.scratch.name)
        self.models = self.root / "models"
        for folder in ("home", "models", "cwd"):
            (self.root / folder).mkdir()

    def environment(self, more=None):
        keep = {name: os.environ[name] for name in ("PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "ASAN_SYMBOLIZER_PATH", "LLVM_PROFILE_FILE") if name in os.environ}
        return keep | {"HOME": str(self.root / "home"), "HEADRACE_MODELS_DIR": str(self.models)} | (more or {})

    def run_program(self, *arguments, env=None, stdin="", preexec_fn=None):
        return subprocess.run([HEADRACE, *arguments], capture_output=True, text=True, input=stdin, timeout=120,
                              cwd=self.root / "cwd", env=self.environment(env), check=False, preexec_fn=preexec_fn)

    def ok(self, *arguments, **more):
        done = self.run_program(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, code, *arguments, **more):
        """The error line; asserts the exit code and that nothing went to stdout."""
        done = self.run_program(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("\x1b", done.stderr, "no colour where there is no terminal")
        return done.stderr

    def tiny(self, name="tiny.gguf", *kind):
        """A model that show can read; of the kind "base" a whole one without a chat template."""
        path = self.models / name
        subprocess.run([MAKE_TINY, str(path), *kind], check=True)
        return path

    @contextlib.contextmanager
    def served(self, *arguments, env=None):
        """A function that asks a ready server of its own: (path, body) to status and JSON."""
        with subprocess.Popen([HEADRACE, "serve", *arguments, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              cwd=self.root / "cwd", env=self.environment(env)) as process:
            try:
                port = int(re.match(r"listening on http://127\.0\.0\.1:(\d+)", process.stdout.readline()).group(1))

                def ask(path, body=None, host="localhost"):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    with contextlib.closing(connection):
                        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                                           {"Content-Type": "application/json", "Host": host})
                        answer = connection.getresponse()
                        return answer.status, json.loads(answer.read())

                while ask("/ready")[0] != 200:
                    self.assertIsNone(process.poll(), "the server ended before it was ready")
                yield ask
            finally:
                process.terminate()


def main():
    unittest.main(argv=sys.argv[:1], verbosity=1)

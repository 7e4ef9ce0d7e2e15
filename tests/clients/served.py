"""A `headrace serve` process for tests: started on a free port, asked over loopback, stopped by a signal."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODEL_NAME = "house"

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def binary():
    path = os.environ.get("HEADRACE_BINARY", str(ROOT / "build/release/headrace"))
    if not os.access(path, os.X_OK):
        skip(f"no program at {path}; build it, or set HEADRACE_BINARY")
    return path


def test_model():
    model = os.environ.get("HEADRACE_TEST_MODEL", "")
    if not os.path.isfile(model):
        skip("no default model; set HEADRACE_TEST_MODEL to its file (./dev test does)")
    return model


def python_with_packages():
    """Goes on in the Python that has the packages of requirements.txt."""
    try:
        import openai  # noqa: F401
    except ImportError:
        python = os.environ.get("HEADRACE_PYTHON", str(ROOT / "build/venv/bin/python"))
        if os.environ.get("HEADRACE_CLIENTS_REEXEC") or not os.access(python, os.X_OK):
            skip("the Python package openai is missing; ./dev setup installs tests/clients/requirements.txt")
        os.environ["HEADRACE_CLIENTS_REEXEC"] = "1"
        os.execv(python, [python, *sys.argv])


class Served:
    """REQUIRES: `model` is a file or script:FILE."""

    def __init__(self, model, *flags, wait=True):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [binary(), "serve", model, "--port", "0", "--served-model-name", MODEL_NAME, *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.banner = []
        for line in self.process.stdout:
            self.banner.append(line)
            found = re.match(r"listening on (https?)://127\.0\.0\.1:(\d+)", line)
            if found:
                break
        else:
            self.process.wait()
            raise RuntimeError(f"serve ended with {self.process.returncode}: {self.read_log()}")
        self.port = int(found.group(2))
        self.url = f"http://127.0.0.1:{self.port}"
        self.reader = threading.Thread(target=lambda: self.banner.extend(self.process.stdout), daemon=True)
        self.reader.start()
        if wait:
            self.wait_ready()

    def wait_ready(self):
        while self.request("GET", "/ready")[0] != 200:
            if self.process.poll() is not None:
                raise RuntimeError(f"serve ended with {self.process.returncode}: {self.read_log()}")
        self.ready_seconds = time.monotonic() - self.started

    def request(self, method, path, body=None, headers=None):
        """Status, headers and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def metrics(self):
        """Samples of /metrics by name with labels."""
        lines = self.request("GET", "/metrics")[2].splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def is_idle(self):
        now = self.metrics()
        return all(now[f"headrace_{name}"] == 0 for name in
                   ("requests_under_way", "sequences_running", "sequences_waiting", "kv_blocks_used"))

    def wait_idle(self, seconds=5.0):
        """Seconds until no slot and no KV block is held."""
        begin = time.monotonic()
        while not self.is_idle():
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"not idle after {seconds} s: {self.metrics()}")
        return time.monotonic() - begin

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def status_field(self, name):
        """A number of /proc/PID/status: VmRSS in KiB, Threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))

    def read_log(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reader.join()
            self.process.stdout.close()
            self.final_log = self.read_log()
            self.log.close()

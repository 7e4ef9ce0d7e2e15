"""Goal: pull from a local hub ends with verified bytes or one clear line; cut, wrong, missing, interrupted, full, offline."""

import hashlib
import http.server
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time

from harness import HEADRACE, CliTest, main

BYTES = bytes(range(256)) * 8000


class Hub(http.server.BaseHTTPRequestHandler):
    """One repository o/r with m-Q4_0.gguf, ranges, and faults that a test switches on."""
    sha256 = hashlib.sha256(BYTES).hexdigest()
    cut_at, slow = None, False
    ranges = []

    def do_GET(self):
        if self.path.startswith("/api/models/o/r/tree/main"):
            listing = [{"type": "file", "path": "m-Q4_0.gguf", "size": len(BYTES), "lfs": {"oid": Hub.sha256}}]
            return self.answer(200, json.dumps(listing).encode())
        if self.path != "/o/r/resolve/main/m-Q4_0.gguf":
            return self.answer(404, b"")
        wanted = self.headers.get("Range", "")
        Hub.ranges.append(wanted)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1)) if wanted else 0
        headers = {"ETag": '"one"'}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(BYTES) - 1}/{len(BYTES)}"
        self.answer(206 if wanted else 200, BYTES[start:], headers)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if Hub.cut_at is not None and len(body) > Hub.cut_at:
            body, Hub.cut_at = body[:Hub.cut_at], None
        for at in range(0, len(body), 65536):
            try:
                self.wfile.write(body[at:at + 65536])
            except OSError:
                return
            if Hub.slow:
                time.sleep(0.05)

    def log_message(self, *_):
        pass


class Pull(CliTest):
    def setUp(self):
        super().setUp()
        Hub.sha256, Hub.cut_at, Hub.slow, Hub.ranges = hashlib.sha256(BYTES).hexdigest(), None, False, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.hub = {"HEADRACE_HF_ENDPOINT": self.url}
        self.file = self.models / "m-Q4_0.gguf"

    def test_from_a_hub(self):
        done = self.run_program("pull", "hf:o/r", env=self.hub)
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.file}\n"), done.stderr)
        self.assertIn("SHA-256 checked", done.stderr)
        self.assertNotIn("\r", done.stderr)
        self.assertEqual(self.file.read_bytes(), BYTES)
        self.assertIn("is here", self.run_program("pull", "hf:o/r:q4_0", env=self.hub).stderr)
        self.assertEqual(len(Hub.ranges), 1)

    def test_a_cut_connection_resumes(self):
        Hub.cut_at = 700_000
        self.ok("pull", "hf:o/r:m-Q4_0.gguf", env=self.hub)
        self.assertEqual(Hub.ranges, ["", "bytes=700000-"])
        self.assertEqual(self.file.read_bytes(), BYTES)

    def test_a_wrong_hash_keeps_nothing(self):
        Hub.sha256 = "0" * 64
        self.assertIn("SHA-256", self.refused(1, "pull", "hf:o/r", env=self.hub))
        self.assertEqual(list(self.models.iterdir()), [])
        self.assertIn("SHA-256", self.refused(1, "pull", f"{self.url}/o/r/resolve/main/m-Q4_0.gguf", "--sha256", "0" * 64))

    def test_what_is_not_there(self):
        self.assertIn("o/none", self.refused(3, "pull", "hf:o/none", env=self.hub))
        self.assertIn("m-Q4_0", self.refused(3, "pull", "hf:o/r:Q8_0", env=self.hub))
        self.assertIn("404", self.refused(3, "pull", f"{self.url}/x.gguf"))
        self.assertIn("near: smollm2", self.refused(3, "pull", "smolm2"))
        self.assertIn("no file", self.refused(3, "pull", "./none.gguf"))

    def test_what_is_refused(self):
        for reference in ("hf:o", "hf:../r:x.gguf", "hf:o/r:../x.gguf", "http://example.com/x.gguf", "ftp://x/y.gguf", f"{self.url}/..%2fx.gguf", f"{self.url}/x.exe"):
            self.refused(2, "pull", reference, env=self.hub)
        self.server.server_close()
        self.refused(1, "pull", f"{self.url}/x.gguf")
        self.assertEqual(list(self.models.iterdir()), [])

    def test_offline(self):
        for reference in ("smollm2", "hf:o/r", f"{self.url}/x.gguf"):
            self.assertIn("--offline", self.refused(3, "pull", "--offline", reference, env=self.hub))
        self.assertIn("offline", self.refused(3, "serve", "smollm2", env=self.hub | {"HEADRACE_OFFLINE": "1"}))

    def test_a_path_is_used_in_place(self):
        path = self.tiny()
        self.assertEqual(self.ok("pull", str(path)), f"{path}\n")

    def test_without_pip(self):
        self.assertIn("pip", self.refused(1, "pull", "smollm2", env={"PATH": "/nowhere", "PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0"}))
        self.assertFalse((self.models / "SmolLM2-135M-Instruct.Q4_1.gguf").exists())
        self.assertEqual([p for p in self.models.iterdir() if p.is_dir()], [], "no scratch folder is left")

    def test_ctrl_c_keeps_the_part_and_the_next_pull_resumes(self):
        Hub.slow = True
        with subprocess.Popen([HEADRACE, "pull", "hf:o/r"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(self.hub), text=True) as child:
            part = self.models / "m-Q4_0.gguf.part"
            for _ in range(200):
                if part.exists() and part.stat().st_size > 100_000:
                    break
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 130, stderr)
        self.assertIn("resumes", stderr)
        kept = part.stat().st_size
        self.assertGreater(kept, 0)
        Hub.slow = False
        self.ok("pull", "hf:o/r", env=self.hub)
        self.assertEqual(Hub.ranges[-1], f"bytes={kept}-")
        self.assertEqual(self.file.read_bytes(), BYTES)

    def test_a_terminal_sees_rate_and_time_left(self):
        Hub.slow = True
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(HEADRACE, [HEADRACE, "pull", "hf:o/r"], self.environment(self.hub))
        seen = b""
        try:
            while piece := os.read(terminal, 4096):
                seen += piece
        except OSError:  # the end of a terminal
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, seen)
        self.assertRegex(seen.decode(), r"\rm-Q4_0\.gguf  [\d.]+ .?B of 2\.0 MB  [\d.]+ .?B/s  \d+ s left")


main()

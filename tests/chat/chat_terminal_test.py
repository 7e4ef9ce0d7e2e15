"""Goal: `headrace run` behaves at a terminal and in a pipe. Usage: chat_terminal_test.py BINARY

A scripted model answers; the program sits behind a pseudo-terminal as in a person's window. Exit 77: no binary."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

BINARY = ""
# A loaded machine is slow; nothing here waits that long when it works.
TIMEOUT_S = 60

SCRIPT = {
    "step_ms": 1, "context": 4096,
    "replies": [
        {"match": "SHOUT", "pieces": ["\x1b]0;owned\x07", "red\x1b[31m"]},
        {"match": "after the stop", "pieces": ["going", " on"]},
        {"match": "for ever", "pieces": ["tick", " tock "], "delay_ms": 10, "repeat": 1000},
        {"match": "two\nlines", "pieces": ["both", " seen"]},
        {"match": "argument\n\npiped", "pieces": ["joined"]},
        {"match": "break", "pieces": ["half", "x"], "fault_at": 1},
        {"pieces": ["Hello", " wörld", "!"]},
    ],
}


class Home:
    """A home folder and a script in it."""

    def __init__(self, script=None):
        self.folder = tempfile.TemporaryDirectory(prefix="chat_terminal_")
        self.path = Path(self.folder.name)
        (self.path / "model.json").write_text(json.dumps(script or SCRIPT), encoding="utf-8")
        self.model = f"script:{self.path / 'model.json'}"
        keep = {name: os.environ[name] for name in ("PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "LLVM_PROFILE_FILE") if name in os.environ}
        self.environment = {**keep, "HOME": str(self.path), "TERM": "xterm"}

    def pipe(self, *arguments, stdin=b""):
        return subprocess.run([BINARY, "run", self.model, *arguments], input=stdin, capture_output=True,
                              env=self.environment, timeout=TIMEOUT_S, check=False)


class Terminal:
    """The program in a window of 80 columns."""

    def __init__(self, home, *arguments):
        self.seen = ""
        self.at = 0  # expect() looks from here on
        self.status = None
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(BINARY, [BINARY, "run", home.model, *arguments], home.environment)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def read(self, timeout_s):
        ready, _, _ = select.select([self.master], [], [], timeout_s)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is gone
            data = b""
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, text):
        """Waits for `text` and gives what came before it."""
        end = time.monotonic() + TIMEOUT_S
        while (found := self.seen.find(text, self.at)) < 0:
            if time.monotonic() > end or not self.read(1) and self.gone():
                raise AssertionError(f"never came: {text!r}; since then: {self.seen[self.at:]!r}")
        before = self.seen[self.at:found]
        self.at = found + len(text)
        return before

    def send(self, text):
        os.write(self.master, text.encode())

    def send_key(self, key):
        """A control key at the prompt. The editor prints the prompt before it takes the terminal over; until then the
        terminal itself would eat the key."""
        end = time.monotonic() + TIMEOUT_S
        while termios.tcgetattr(self.master)[3] & termios.ICANON:
            assert time.monotonic() < end, "the editor never took the terminal over"
            self.read(0.01)
        self.send(key)

    def line(self, text):
        self.send(text + "\r")

    def gone(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def exit_code(self):
        end = time.monotonic() + TIMEOUT_S
        while not self.gone() and time.monotonic() < end:
            self.read(0.1)
        return self.status

    def close(self):
        if not self.gone():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


class ChatTest(unittest.TestCase):
    def start(self, *arguments, script=None):
        self.home = Home(script)
        self.addCleanup(self.home.folder.cleanup)
        terminal = Terminal(self.home, *arguments)
        self.addCleanup(terminal.close)
        terminal.expect(">>> ")
        return terminal

    def test_answers_and_says_bye(self):
        terminal = self.start()
        terminal.line("Hi")
        terminal.expect("Hello wörld!")
        terminal.expect(">>> ")
        terminal.line("/bye")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_d_ends(self):
        terminal = self.start()
        terminal.send_key("\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(self):
        terminal = self.start()
        terminal.line("talk for ever")
        terminal.expect("tick tock tick")
        terminal.send("\x03")
        terminal.expect("Stopped")
        terminal.expect(">>> ")
        terminal.line("after the stop")
        terminal.expect("going on")
        terminal.expect(">>> ")
        terminal.line("/bye")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_at_the_prompt_is_a_hint(self):
        terminal = self.start()
        terminal.send_key("half a line\x03")
        terminal.expect("/bye or Ctrl-D ends the chat.")
        terminal.expect(">>> ")
        terminal.line("Hi")  # what was typed before is gone
        terminal.expect("Hello wörld!")
        self.assertFalse(terminal.gone())

    def test_several_lines(self):
        terminal = self.start()
        terminal.line('"""two')
        terminal.expect("... ")
        terminal.line('lines"""')
        terminal.expect("both seen")
        terminal.expect(">>> ")
        terminal.line('"""')
        terminal.expect("... ")
        terminal.send_key("\x03")
        terminal.expect("unfinished message was dropped")
        terminal.expect(">>> ")

    def test_commands(self):
        terminal = self.start("--system", "Be brief.")
        terminal.line("/sho")
        terminal.expect("Near: /show")
        terminal.line("/set temperature 0.25")
        terminal.expect(">>> ")
        terminal.line("/set top_p 9")
        terminal.expect("'top_p' must be a number from 0 to 1, but it is 9")
        terminal.line("/show")
        self.assertIn("0.25", terminal.expect("Be brief."))
        terminal.line("/help")
        terminal.expect("/save FILE")
        terminal.line("Hi")
        terminal.expect("Hello wörld!")
        terminal.line("/save ~/talk.json")
        terminal.expect("Saved")
        saved = json.loads((self.home.path / "talk.json").read_text(encoding="utf-8"))
        self.assertEqual([m["role"] for m in saved["messages"]], ["system", "user", "assistant"])
        self.assertEqual(saved["messages"][2]["content"], "Hello wörld!")
        self.assertEqual(saved["settings"], {"temperature": 0.25})
        terminal.line("/save ~/model.json")
        terminal.expect("choose another name")
        terminal.line("/clear")
        terminal.expect("forgotten")
        terminal.line("/save ~/talk.json")  # its own file it may replace
        terminal.expect("Saved")
        saved = json.loads((self.home.path / "talk.json").read_text(encoding="utf-8"))
        self.assertEqual(len(saved["messages"]), 1)

    def test_settings_of_sampling(self):
        names = ["temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop",
                 "max_tokens", "system"]
        terminal = self.start("--min-p", "0.125", "--stop", "never")
        terminal.line("/set")
        listed = terminal.expect(">>> ")
        terminal.line("/help")
        helped = terminal.expect(">>> ")
        for name in names:
            self.assertRegex(listed, rf"  {name} +\S")
            self.assertIn(name, helped)
        terminal.line('/set stop ["wör", "!"]')
        terminal.expect(">>> ")
        terminal.line("/show")
        shown = terminal.expect(">>> ")
        self.assertRegex(shown, r"min_p +0\.125")
        self.assertRegex(shown, r'stop +\["wör","!"\]')
        terminal.line("Hi")
        self.assertIn("Hello ", answer := terminal.expect(">>> "))
        self.assertNotIn("wör", answer)

    def test_model_text_cannot_steer_the_terminal(self):
        terminal = self.start()
        terminal.line("SHOUT")
        terminal.expect("\\x1b]0;owned\\x07red\\x1b[31m")
        terminal.expect(">>> ")
        self.assertNotIn("\x1b]0;", terminal.seen)

    def test_fault_leaves_the_chat(self):
        terminal = self.start()
        terminal.line("break")
        terminal.expect("half")
        terminal.expect(">>> ")
        terminal.line("/bye")
        self.assertEqual(terminal.exit_code(), 0)

    def test_full_context_says_what_to_do(self):
        script = {"context": 128, "step_ms": 0, "replies": [{"pieces": ["a", "b"], "repeat": 500}]}
        terminal = self.start(script=script)
        terminal.line("go")
        terminal.expect("context of 128 tokens is full")
        terminal.expect("/clear")
        terminal.expect(">>> ")
        terminal.line("more")
        terminal.expect("maximum context length")
        terminal.expect("/clear")
        terminal.expect(">>> ")
        terminal.line("/clear")
        terminal.expect(">>> ")
        terminal.line("go")
        terminal.expect("ababab")

    def test_history_is_kept_for_the_owner_only(self):
        terminal = self.start()
        terminal.line("Grüße")
        terminal.expect("Hello wörld!")
        terminal.expect(">>> ")
        terminal.send("\x1b[A\r")  # up, enter: the same line again
        terminal.expect("Grüße")
        terminal.expect("Hello wörld!")
        terminal.line("/bye")
        self.assertEqual(terminal.exit_code(), 0)
        path = self.home.path / ".local/state/headrace/history"
        self.assertEqual(path.read_text(encoding="utf-8").splitlines(), ["Grüße", "Grüße", "/bye"])
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        again = Terminal(self.home)
        self.addCleanup(again.close)
        again.expect(">>> ")
        again.send("\x1b[A\x1b[A\r")
        again.expect("Hello wörld!")

    def test_terminal_is_left_as_it_was(self):
        home = Home()
        self.addCleanup(home.folder.cleanup)
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        with subprocess.Popen([BINARY, "run", home.model], stdin=slave, stdout=slave, stderr=slave,
                              env=home.environment, start_new_session=True) as process:
            os.write(master, b"/bye\r")
            self.assertEqual(process.wait(TIMEOUT_S), 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(slave)
        os.close(master)

    def test_verbose_ends_with_rates(self):
        terminal = self.start("--verbose")
        terminal.line("Hi")
        terminal.expect("Hello wörld!")
        terminal.expect("first token")


class PipeTest(unittest.TestCase):
    def setUp(self):
        self.home = Home()
        self.addCleanup(self.home.folder.cleanup)

    def test_argument(self):
        done = self.home.pipe("Hi")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "Hello wörld!\n".encode(), b""))

    def test_stdin(self):
        done = self.home.pipe(stdin=b"two\nlines\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"both seen\n", b""))

    def test_argument_and_stdin(self):
        done = self.home.pipe("argument", stdin=b"piped")
        self.assertEqual(done.stdout, b"joined\n")

    def test_bytes_pass_unchanged(self):
        self.assertEqual(self.home.pipe("SHOUT").stdout, b"\x1b]0;owned\x07red\x1b[31m\n")

    def test_verbose_is_on_stderr(self):
        done = self.home.pipe("--verbose", "Hi")
        self.assertEqual(done.stdout, "Hello wörld!\n".encode())
        self.assertRegex(done.stderr.decode(), re.compile(r"prompt +\d+ tokens.*generation.*first token +\d", re.S))

    def test_bad_prompts(self):
        for stdin, word in ((b"", "empty"), (b" \n", "empty"), (b"a\xffb", "byte 1"), (b"x" * ((16 << 20) + 1), "16 MiB")):
            done = self.home.pipe(stdin=stdin)
            self.assertEqual((done.returncode, done.stdout), (2, b""), word)
            self.assertIn(word, done.stderr.decode())

    def test_fault_is_an_exit_code(self):
        done = self.home.pipe("break")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, b"half\n")
        self.assertIn("headrace:", done.stderr.decode())

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BINARY, "run", self.home.model, "Hi"], stdin=subprocess.DEVNULL, stdout=full,
                                  stderr=subprocess.PIPE, env=self.home.environment, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr.decode())

    def test_ctrl_c_is_130(self):
        with subprocess.Popen([BINARY, "run", self.home.model, "talk for ever"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.home.environment) as process:
            self.assertTrue(process.stdout.read(4))
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 130)


def main():
    global BINARY
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print("skipped: no binary")
        return 77
    BINARY = os.path.abspath(sys.argv.pop(1))
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())

"""Goal: help fits a screen, mistakes are one line with the remedy and exit code 2, completions parse in their shells."""

import os
import pty
import shutil
import subprocess

from harness import HEADRACE, CliTest, main

COMMANDS = ["run", "serve", "pull", "list", "show", "rm", "bench", "doctor", "config", "completion", "version"]


class CommandLine(CliTest):
    def test_help_fits_one_screen_with_three_examples(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            text = self.ok(*arguments)
            self.assertLessEqual(len(text.splitlines()), 40)
            self.assertTrue(all(len(line) <= 100 for line in text.splitlines()))
            self.assertEqual(len([line for line in text.splitlines() if line.startswith("  headrace ")]), 3)
            for command in COMMANDS:
                self.assertIn(f"\n  {command} ", text)

    def test_help_of_each_command(self):
        for command in COMMANDS:
            text = self.ok(command, "--help")
            self.assertTrue(text.startswith(f"Usage: headrace {command}"), text)
            self.assertLessEqual(len(text.splitlines()), 64 if command == "config" else 52)
            self.assertEqual(text, self.ok("help", command))

    def test_help_all_has_flags_variables_keys_and_exit_codes(self):
        text = self.ok("--help", "all")
        for part in ("--max-batch-tokens", "--max-num-batched-tokens", "HEADRACE_MAX_BATCH_TOKENS", "max_batch_tokens", "130  interrupted", "4    cannot serve", "--keep-alive TIME", "HEADRACE_KEEP_ALIVE; keep_alive in the file"):
            self.assertIn(part, text)
        self.assertEqual(text, self.ok("help", "all"))

    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^headrace \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ok("--version"), self.ok("version"))

    def test_mistakes_are_usage_errors_with_near_names(self):
        self.assertIn("a command is needed", self.refused(2))
        self.assertIn("Near: serve", self.refused(2, "serv"))
        self.assertIn("Near: --port", self.refused(2, "serve", "--prot", "1"))
        self.assertIn("--port: 'x'", self.refused(2, "serve", "--port", "x"))
        self.assertIn("--port", self.refused(2, "serve", "--port"))
        self.assertIn("does not take 'b'", self.refused(2, "show", "a", "b"))
        self.assertIn("unknown flag '--json' for serve", self.refused(2, "serve", "--json"))
        for line in (self.refused(2, "serve", "--kv-memory", "lots"), self.refused(2, "pull"), self.refused(2, "completion", "csh")):
            self.assertEqual(line.count("\n"), 1, line)

    def test_a_flag_is_never_a_value(self):
        self.assertIn("--port needs a value: N", self.refused(2, "serve", "m", "--port"))
        self.assertIn("--host needs a value: ADDRESS", self.refused(2, "serve", "m", "--host", "--port", "1"))
        self.assertIn("--served-model-name needs a value", self.refused(2, "serve", "m", "--served-model-name", "--port", "1"))
        self.assertIn("seed = -5", self.ok("config", "show", "--seed", "-5"))

    def test_behind_two_dashes_all_are_words(self):
        (self.root / "cwd" / "-x.gguf").write_bytes(b"GGUF")
        self.assertIn("-x.gguf", self.run_program("serve", "--port", "0", "--", "-x.gguf").stderr)
        self.assertIn("'--json'", self.refused(2, "show", "--", "--json"))

    def test_errors_name_the_spelling_that_was_typed(self):
        self.assertIn("--max_model_len: 'x'", self.refused(2, "serve", "--max_model_len", "x"))
        self.assertIn("--ctx-size: '-2'", self.refused(2, "serve", "--ctx-size=-2"))

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.tiny()
        for command in (["list"], ["list", "--json"], ["--help"], ["config", "show"], ["version"], ["completion", "bash"]):
            with self.subTest(command), open("/dev/full", "w") as full:
                done = subprocess.run([HEADRACE, *command], stdout=full, stderr=subprocess.PIPE, text=True, env=self.environment(), check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("standard output cannot be written", done.stderr)

    def test_hostile_arguments_are_escaped(self):
        line = self.refused(2, "\x1b[31mred\n")
        self.assertIn("\\x1b", line)
        self.refused(2, "serve", "--" + "x" * 100_000)

    def test_completions_parse(self):
        for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
            script = self.ok("completion", shell)
            for word in ("--max-batch-tokens", "doctor", "avx512") if shell != "fish" else ("max-batch-tokens", "doctor", "avx512"):
                self.assertIn(word, script)
            if shutil.which(check[0]) is None:
                print(f"{shell} is not here: its completion was not parsed")
                continue
            path = self.root / f"completion.{shell}"
            path.write_text(script)
            subprocess.run([*check, str(path)], check=True)

    def test_bash_completes(self):
        self.tiny()
        script = self.root / "completion.bash"
        script.write_text(self.ok("completion", "bash"))

        def complete(*words):
            ask = f"source {script}; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _headrace; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            # headrace itself is asked for the models that are here.
            binary = self.root / "bin"
            binary.mkdir(exist_ok=True)
            link = binary / "headrace"
            if not link.exists():
                link.symlink_to(HEADRACE)
            env = self.environment()
            env["PATH"] = f"{binary}:{env['PATH']}"
            return subprocess.run(["bash", "-c", ask], capture_output=True, text=True, env=env, cwd=self.root / "cwd", check=True).stdout.split()

        self.assertEqual(complete("headrace", "ser"), ["serve"])
        self.assertEqual(complete("headrace", "serve", "--max-b"), ["--max-batch-tokens"])
        self.assertEqual(complete("headrace", "serve", "--isa", "avx5"), ["avx512"])
        self.assertEqual(complete("headrace", "show", "ti"), ["tiny"])
        self.assertEqual(complete("headrace", "pull", "smol"), ["smollm2"])
        self.assertEqual(complete("headrace", "completion", "z"), ["zsh"])
        self.assertEqual(complete("headrace", "serve", "--isa", "=", "am"), ["amx"])

    def test_bash_completes_into_folders_and_names_with_blanks(self):
        script = self.root / "completion.bash"
        script.write_text(self.ok("completion", "bash"))
        (self.root / "cwd" / "my models").mkdir()
        (self.root / "cwd" / "my models" / "one.gguf").write_bytes(b"x")
        for words in ("serve m", "serve --chat-template m"):
            # Three lines to a terminal: what is completed is only shown, as an argument of printf.
            typed = f"headrace {words}\t" + "on\t\n"
            self.assertIn("[my models/one.gguf]", self.typed_in_bash(script, typed), words)

    def typed_in_bash(self, script, typed):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.root / "cwd")
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], self.environment({"TERM": "dumb", "INPUTRC": "/dev/null"}))
        os.write(terminal, f"headrace() {{ [[ $1 == list ]] || printf '[%s]' \"$@\"; }}; source {script}; echo rea''dy\n".encode())
        seen = b""
        try:
            while b"ready" not in seen:
                seen += os.read(terminal, 4096)
            os.write(terminal, typed.encode() + b"exit\n")
            while piece := os.read(terminal, 4096):
                seen += piece
        except OSError:  # the end of a terminal
            pass
        os.close(terminal)
        os.waitpid(pid, 0)
        return seen.decode()


main()

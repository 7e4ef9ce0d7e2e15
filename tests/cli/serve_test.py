"""Goal: serve refuses what would be unsafe or unclear before it loads anything, with the documented exit codes."""

import socket

from harness import CliTest, main


class Serve(CliTest):
    def test_exposure_needs_a_key_or_insecure(self):
        self.tiny()
        for host in ("0.0.0.0", "::", "192.0.2.1"):
            line = self.refused(2, "serve", "tiny", "--host", host)
            self.assertIn("--api-key-file", line)
            self.assertIn("--insecure", line)

    def test_two_models(self):
        self.assertIn("one model a server for now: 'b'", self.refused(2, "serve", "a", "b"))
        self.assertIn("one model a server for now: 'b'", self.refused(2, "serve", "a", "--model", "b"))

    def test_half_of_tls(self):
        self.assertIn("--tls-key", self.refused(2, "serve", "--tls-cert", "c.pem"))

    def test_no_such_model(self):
        self.assertIn("near: tiny", (self.tiny(), self.refused(3, "serve", "tinny"))[1])

    def failed(self, code, *arguments):
        """The last line of stderr of a command that may have begun to serve."""
        done = self.run_program(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr.splitlines()[-1]

    def test_whatever_is_not_found_is_exit_code_3_in_every_command(self):
        script = self.root / "model.json"
        script.write_text('{"replies": [{"pieces": ["a"]}]}')
        (self.models / "folder").mkdir()
        for model in ("./none.gguf", "none-of-that-name", f"script:{self.root}/none.json", str(self.models / "folder"), "./m-00001-of-00002.gguf"):
            with self.subTest(model):
                self.failed(3, "serve", model, "--port", "0")
                self.failed(3, "run", model, "hi")
        for flags in (["--chat-template", "none.jinja"], ["--api-key-file", "none.toml"], ["--tls-cert", "none.pem", "--tls-key", "none.pem"],
                      ["--config", "none.toml"]):
            with self.subTest(flags):
                self.assertIn(flags[1], self.failed(3, "serve", f"script:{script}", "--port", "0", *flags))
        self.assertIn("none.jinja", self.failed(3, "run", f"script:{script}", "hi", "--chat-template", "none.jinja"))

    def test_what_is_there_and_broken_is_1_and_a_wrong_value_is_2(self):
        (self.models / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
        (self.root / "bad.json").write_text('{"replies": 3}')
        for command in (["serve", "bad", "--port", "0"], ["run", "bad", "hi"], ["show", "bad"]):
            self.assertIn("bad.gguf", self.failed(1, *command))
        for command in (["serve", f"script:{self.root}/bad.json", "--port", "0"], ["run", f"script:{self.root}/bad.json", "hi"]):
            self.assertIn("replies", self.failed(2, *command))
        self.assertIn("192.0.2.1", self.failed(2, "serve", "bad", "--host", "192.0.2.1", "--insecure", "--port", "0"))

    def test_o54_too_little_memory_is_said_with_figures_and_remedy(self):
        self.tiny("base.gguf", "base")
        for command in (["serve", "base", "--port", "0"], ["run", "base", "abc"]):
            line = self.failed(4, *command, "--kv-memory", "1000TiB")
            self.assertRegex(line, r"base\.gguf needs about \d+ MiB for weights and 1048576000 MiB for the KV cache, but only \d+ MiB are free")
            for remedy in ("--kv-memory", "--ctx", "smaller model"):
                self.assertIn(remedy, line)
        # The remedy works.
        self.assertEqual(self.ok("run", "base", "abc", "--kv-memory", "1MiB", "--temperature", "0", "--max-tokens", "3"), "ccc\n")

    def test_keep_alive_has_a_range_in_every_layer(self):
        for arguments, env in ((["--keep-alive", "0"], None), (["--keep-alive", "1d"], None), ([], {"HEADRACE_KEEP_ALIVE": "0.01"})):
            self.assertRegex(self.refused(2, "serve", *arguments, env=env), "seconds from 0.1 to 86400|a time such as")
        (self.root / "h.toml").write_text('keep_alive = "500ms"\n')
        shown = self.ok("config", "show", "--config", str(self.root / "h.toml"))
        self.assertIn('keep_alive = "500ms"', shown)
        self.assertIn('keep_alive = "10"', self.ok("config", "show"))

    def test_port_taken(self):
        path = self.tiny()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertIn(str(port), self.refused(4, "serve", str(path), "--port", str(port)))

    def test_api_key_and_api_key_file_exclude_each_other(self):
        line = self.refused(2, "serve", "--api-key", "k", "--api-key-file", "f")
        self.assertIn("either", line)
        self.assertIn("--api-key is visible", line)


main()

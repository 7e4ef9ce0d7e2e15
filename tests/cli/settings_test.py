"""Goal: flag over environment over file over default, each shown with its origin; mistakes in the file are errors."""

from harness import CliTest, main


class SettingsLayers(CliTest):
    def shown(self, *arguments, env=None):
        """option key → (value, origin)"""
        lines = self.ok("config", "show", "--origin", *arguments, env=env).splitlines()
        pairs = [line.rsplit("  # ", 1) if "  # " in line else line.rsplit(" # ", 1) for line in lines]
        return {left.strip(" #").split(" =")[0]: (left.split("=", 1)[1].strip(), right) for left, right in pairs}

    def file(self, text, name="my.toml"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def test_precedence_and_origin(self):
        path = self.file("port = 1001\nhost = \"10.0.0.1\"\nctx = 512\n")
        shown = self.shown("--config", path, "--port", "1003", env={"HEADRACE_PORT": "1002", "HEADRACE_HOST": "10.0.0.2"})
        self.assertEqual(shown["port"], ("1003", "flag: --port"))
        self.assertEqual(shown["host"], ('"10.0.0.2"', "environment: HEADRACE_HOST"))
        self.assertEqual(shown["ctx"], ("512", f"file: {path}, line 3"))
        self.assertEqual(shown["max_sequences"], ("32", "default"))

    def test_every_flag_of_serve_has_a_variable_and_a_key(self):
        shown = self.shown()
        for line in self.ok("serve", "--help").splitlines():
            if line.startswith("  --"):
                name = line.split()[0][2:]
                if name not in ("api-key", "config"):
                    self.assertIn(name.replace("-", "_"), shown)

    def test_the_output_is_a_configuration_file(self):
        path = self.file(self.ok("config", "show", "--system", 'say "hi"\tü', "--kv-memory", "2GiB"))
        shown = self.shown("--config", path)
        self.assertEqual(shown["system"][0], '"say \\"hi\\"\\u0009ü"')
        self.assertEqual(shown["kv_memory"][0], '"2GiB"')

    def test_the_users_own_file_is_found(self):
        self.file("port = 77\n", "home/.config/headrace/headrace.toml")
        self.assertEqual(self.shown()["port"][0], "77")
        self.file("port = 78\n", "xdg/headrace/headrace.toml")
        self.assertEqual(self.shown(env={"XDG_CONFIG_HOME": str(self.root / "xdg")})["port"][0], "78")
        self.assertEqual(self.shown(env={"HEADRACE_CONFIG": self.file("port = 79\n")})["port"][0], "79")

    def test_mistakes_in_the_file_are_errors_for_every_command(self):
        path = self.file("\nprot = 1\n")
        for command in (["serve"], ["list"], ["config", "show"], ["config", "check"]):
            line = self.refused(2, *command, "--config", path)
            self.assertIn("line 2: unknown key 'prot'. Near: port", line)
        self.assertIn("line 1", self.refused(2, "list", "--config", self.file("port = \"x\"")))
        self.assertIn("line 1", self.refused(2, "list", "--config", self.file("port = ")))
        self.assertIn("No such file", self.refused(3, "list", "--config", str(self.root / "none.toml")))
        self.ok("version", env={"HEADRACE_CONFIG": path})

    def test_vllm_spellings(self):
        shown = self.shown("--max-model-len", "100", "--max-num-seqs", "5", "--max-num-batched-tokens", "9", "--ssl-certfile", "c", "--ssl-keyfile", "k")
        self.assertEqual([shown[key][0] for key in ("ctx", "max_sequences", "max_batch_tokens", "tls_cert", "tls_key")], ["100", "5", "9", '"c"', '"k"'])

        shown = self.shown("--max_model_len", "8K", "--kv-cache-memory-bytes", "1G", "--uvicorn-log-level", "warning", "--served_model_name", "a", "b")
        self.assertEqual([shown[key] for key in ("ctx", "kv_memory", "log_level", "served_model_name")],
                         [('"8K"', "flag: --max_model_len"), ('"1G"', "flag: --kv-cache-memory-bytes"), ('"warn"', "flag: --uvicorn-log-level"), ('["a", "b"]', "flag: --served_model_name")])
        self.assertEqual(self.shown("--max-model-len", "auto", "--isa", "amx")["isa"][0], '"amx"')

    def test_a_key_is_never_shown(self):
        for arguments, env in ((["--api-key", "sk-secret"], None), ([], {"HEADRACE_API_KEY": "sk-secret"})):
            text = self.ok("config", "show", "--origin", *arguments, env=env)
            self.assertNotIn("sk-secret", text)
            self.assertIn("# api_key = (set, not shown)", text)
        self.assertIn("is a secret", self.refused(2, "list", "--config", self.file("api_key = \"k\"")))

    def test_a_flag_given_twice_counts_once_and_switches_can_be_off(self):
        self.assertEqual(self.shown("--port", "1", "--port=2")["port"][0], "2")
        self.assertEqual(self.shown("--insecure=false", env={"HEADRACE_INSECURE": "yes"})["insecure"][0], "false")


main()

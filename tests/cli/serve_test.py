"""Goal: serve refuses what would be unsafe or unclear before it loads anything, with the documented exit codes."""

import json
import re
import signal
import socket
import struct
import subprocess
import time

from harness import HEADRACE, CliTest, main


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

        self.assertIn("one model a server for now: 'a'", self.refused(2, "serve", "a", "a"))

    def test_a_model_that_served_model_name_took_is_not_replaced_by_another(self):
        path = self.tiny()
        (self.root / "cwd" / "hf").mkdir()
        for model in ("./hf", "org/name", "script:x.json", "hf:o/r", "https://h/x.gguf", "smollm2", "tiny", str(path), "hf/"):
            with self.subTest(model):
                line = self.refused(2, "serve", "--served-model-name", "mymodel", model)
                self.assertIn(f"takes '{model}' as a name: is it the MODEL? Write MODEL first, or --served-model-name=NAME", line)
        # With a MODEL, and in the form that takes one word, these are names.
        for arguments in (["none", "--served-model-name", "a", "org/b"], ["--served-model-name=org/b", "none"], ["--model", "none", "--served-model-name", "org/b"]):
            self.assertIn("'none'", self.refused(3, "serve", *arguments))

    def test_names_are_checked_in_every_layer(self):
        for name in ("", "a\nb", "\x1b[31m"):
            self.assertIn("must be a name", self.refused(2, "serve", "m", f"--served-model-name={name}"))
        self.assertIn("must be a name", self.refused(2, "serve", "m", env={"HEADRACE_SERVED_MODEL_NAME": "a,b\tc"}))

    def test_flags_of_vllm_that_change_nothing_are_ignored_in_one_line(self):
        done = self.run_program("serve", "none-of-that", "--dtype", "auto", "--trust_remote_code", "--enforce-eager", "--tensor-parallel-size=1",
                                "--generation-config", "auto", "--disable-log-requests", "--uvicorn-log-level", "warning", "--max_model_len", "1k", "--kv-cache-memory-bytes", "1G")
        self.assertEqual(done.returncode, 3, done.stderr)
        ignored = [line for line in done.stderr.splitlines() if "ignored" in line]
        self.assertEqual(ignored, ["headrace: ignored, as there is nothing to change: --dtype auto, --trust_remote_code, --enforce-eager, --tensor-parallel-size 1, --generation-config auto, --disable-log-requests"])
        line = self.refused(2, "serve", "m", "--tensor_parallel_size", "2")
        self.assertIn("--tensor_parallel_size: '2' is not taken, only '1': one process serves a model", line)
        self.assertIn("--dtype: 'float16'", self.refused(2, "serve", "m", "--dtype", "float16"))
        self.assertIn("--dtype needs a value: auto", self.refused(2, "serve", "m", "--dtype"))
        self.assertIn("unknown flag '--dtype'", self.refused(2, "run", "m", "--dtype", "auto"))

    def test_the_key_of_the_environment_is_asked_for(self):
        script = self.root / "model.json"
        script.write_text('{"replies": [{"pieces": ["a"]}]}')
        with self.served(f"script:{script}", env={"HEADRACE_API_KEY": "sk-env"}) as ask:
            self.assertEqual(ask("/v1/models")[0], 401)
        line = self.refused(2, "serve", "--api-key-file", "f", env={"HEADRACE_API_KEY": "sk-env"})
        self.assertIn("either --api-key-file or HEADRACE_API_KEY", line)
        self.assertNotIn("sk-env", line)

    def test_a_key_file_of_another_form_says_what_to_write(self):
        script = self.root / "model.json"
        script.write_text('{"replies": [{"pieces": ["a"]}]}')
        for text in ("sk-secret\n", "key = 'sk-secret'\n", ""):
            keys = self.root / "keys.toml"
            keys.write_text(text)
            said = self.refused(2, "serve", f"script:{script}", "--port", "0", "--api-key-file", str(keys))
            self.assertIn('\n  [[keys]]\n  sha256 = "HEX"\n', said)
            self.assertIn("sha256sum", said)
            self.assertNotIn("sk-secret", said)

    def test_unknown_variables_are_said(self):
        for command in (["serve", "none-of-that"], ["config", "check"]):
            done = self.run_program(*command, env={"HEADRACE_PROT": "1", "HEADRACE_PORT": "tcp://10.0.0.1:80", "HEADRACE_SERVICE_HOST": "10.0.0.1"})
            self.assertEqual(done.returncode, 3 if command[0] == "serve" else 0, done.stderr)
            self.assertIn("HEADRACE_PROT is ignored: no setting has this name. Near: HEADRACE_PORT", done.stderr)
            self.assertIn("headrace: 2 variables such as", done.stderr)
        self.assertEqual(self.run_program("list", env={"HEADRACE_PROT": "1"}).stderr.count("HEADRACE_PROT"), 0)

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

    def hugging_face_model(self):
        """A folder with a llama of one layer whose weights are zeros, and a tokenizer of one-character tokens."""
        folder = self.models / "hf"
        folder.mkdir()
        size = 64
        shapes = {"model.embed_tokens.weight": [size, size], "lm_head.weight": [size, size], "model.norm.weight": [size]}
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
            shapes[f"model.layers.0.{name}.weight"] = [size, size]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.0.{name}.weight"] = [size]
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * size ** len(shape)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
        (folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": size, "intermediate_size": size, "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": size, "vocab_size": size, "max_position_embeddings": size,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": 0}))
        vocabulary = {"<s>": 0} | {chr(33 + i): 1 + i for i in range(60)}
        (folder / "tokenizer.json").write_text(json.dumps({
            "added_tokens": [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
            "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
        return folder

    def test_the_models_sampling_defaults_are_shown(self):
        folder = self.hugging_face_model()
        (folder / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
        with self.served(str(folder)) as ask:
            self.assertEqual(ask("/v1/models/hf")[1]["sampling_defaults"], {"temperature": 0.6, "top_k": 20})
            self.assertEqual(ask("/v1/models")[1]["models"][0]["slug"], "hf")
            status, answer = ask("/v1/completions", {"model": "hf", "prompt": "ABC", "max_tokens": 3, "best_of": 3})
            self.assertEqual((status, len(answer["choices"]), answer["usage"]["completion_tokens"]), (200, 1, 9))
        with subprocess.Popen([HEADRACE, "serve", str(folder), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              cwd=self.root / "cwd", env=self.environment()) as process:
            lines = [process.stdout.readline() for _ in range(4)]
            process.terminate()
        self.assertEqual(lines[3], "sampling defaults of the model: temperature 0.6, top_k 20\n")

    def test_a_bad_generation_config_is_named_with_its_folder(self):
        folder = self.hugging_face_model()
        for text, cause in (("{", "not valid JSON|JSON"), ('{"temperature": 7}', r"temperature' must be a number from 0 to 2"), ("[]", "JSON object")):
            with self.subTest(text):
                (folder / "generation_config.json").write_text(text)
                line = self.failed(1, "serve", str(folder), "--port", "0")
                self.assertIn(str(folder), line)
                self.assertIn("generation_config.json", line)
                self.assertRegex(line, cause)

    def test_a_folder_without_a_model_is_named(self):
        folder = self.root / "etc"
        folder.mkdir()
        self.assertIn(str(folder), self.failed(3, "serve", str(folder), "--port", "0"))

    def hung(self):
        """A server inside a step that takes a minute, with one stream that waits for it; after the first signal."""
        script = self.root / "hang.json"
        script.write_text('{"replies": [{"pieces": ["a"], "delay_ms": 60000}]}')
        process = subprocess.Popen([HEADRACE, "serve", f"script:{script}", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd=self.root / "cwd", env=self.environment())
        self.addCleanup(process.kill)
        port = int(re.match(r"listening on http://127\.0\.0\.1:(\d+)", process.stdout.readline()).group(1))
        body = json.dumps({"model": "hang", "messages": [{"role": "user", "content": "x"}]}).encode()
        while True:
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            self.addCleanup(client.close)
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
            client.settimeout(1)
            try:
                client.recv(4096)  # still loading: 503
                client.close()
            except TimeoutError:
                break
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        client.settimeout(60)
        return process, client

    def test_a_second_signal_does_not_wait_for_a_step_that_hangs(self):
        process, client = self.hung()
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        answer = client.recv(65536).decode()
        _, log = process.communicate(timeout=50)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(process.returncode, 1)
        self.assertTrue(answer.startswith("HTTP/1.1 503"), answer)
        self.assertIn("status=503 error=unavailable", log)
        self.assertNotIn("status=499", log)

    def test_allowed_names_have_all_layers(self):
        (self.root / "h.toml").write_text('allowed_host = ["box.lan", "headrace"]\nallowed_origin = ["*"]\n')
        shown = self.ok("config", "show", "--config", str(self.root / "h.toml"))
        self.assertIn('allowed_host = ["box.lan", "headrace"]', shown)
        self.assertIn('allowed_origin = ["*"]', shown)
        self.assertIn("--allowed-host", self.ok("serve", "--help"))
        self.assertIn("https://chat.example", self.refused(2, "serve", "script:m.json", "--allowed-origin", "chat.example"))
        self.assertIn("HEADRACE_ALLOWED_ORIGIN", self.ok("--help", "all"))
        script = self.root / "m.json"
        script.write_text('{"replies": [{"pieces": ["a"]}]}')
        with self.served(f"script:{script}", "--allowed-host", "box.lan", "--allowed-host", "headrace") as ask:
            for host, status in (("box.lan", 200), ("headrace:8080", 200), ("other", 403)):
                self.assertEqual(ask("/v1/models", host=host)[0], status, host)

    def test_log_json_has_a_member_for_each_field(self):
        script = self.root / "m.json"
        script.write_text('{"replies": [{"pieces": ["a"]}]}')
        with subprocess.Popen([HEADRACE, "serve", f"script:{script}", "--port", "0", "--log-json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, cwd=self.root / "cwd", env=self.environment()) as process:
            port = int(re.match(r"listening on http://127\.0\.0\.1:(\d+)", process.stdout.readline()).group(1))
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(b"GET /x\"status HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client.recv(4096)
            process.terminate()
            lines = [json.loads(line) for line in process.communicate(timeout=60)[1].splitlines()]
        request = next(line for line in lines if line["message"] == "request")
        self.assertEqual((request["route"], request["status"], request["method"]), ("refused", 404, "GET"))

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

"""Goal: a file, flag or model beyond a limit of docs/limits.md is one clear line with the documented exit code."""

import json
import struct

from harness import CliTest, main

MIB = 1 << 20


class Limits(CliTest):
    def sparse(self, size, name="large"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
        return str(path)

    def serve_refuses(self, *arguments, code=2):
        """The error of a model that does not load, after the line that says where the server listens."""
        done = self.run_program("serve", *arguments, "--port", "0")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def script(self, script):
        path = self.root / "script.json"
        path.write_text(json.dumps(script))
        return f"script:{path}"

    def test_configuration_file(self):
        line = self.refused(2, "list", "--config", self.sparse(MIB + 1, "h.toml"))
        self.assertIn("h.toml has 1048577 bytes; at most 1048576 are read", line)

    def test_catalogue(self):
        self.sparse(MIB + 1, "models/catalog.toml")
        line = self.refused(2, "pull", "smollm2")
        self.assertIn("catalog.toml has 1048577 bytes; at most 1048576 are read", line)

    def test_key_file(self):
        line = self.refused(2, "serve", self.script({"replies": [{"pieces": ["a"]}]}), "--api-key-file", self.sparse(4 * MIB + 1, "keys.toml"))
        self.assertIn("keys.toml has 4194305 bytes; at most 4194304 are read", line)

    def test_chat_template_file(self):
        line = self.serve_refuses(self.script({"replies": [{"pieces": ["a"]}]}), "--chat-template", self.sparse(MIB + 1, "t.jinja"))
        self.assertIn("t.jinja has 1048577 bytes; at most 1048576 are read", line)

    def test_script_bytes(self):
        line = self.serve_refuses(f"script:{self.sparse(16 * MIB + 1, 's.json')}")
        self.assertIn("s.json has 16777217 bytes; at most 16777216 are read", line)

    def test_script_tokens(self):
        long = {"pieces": ["ab", "cd"], "repeat": 1048576}
        path = self.script({"replies": [long, long, {"pieces": ["ef"]}]})
        line = self.serve_refuses(path)
        self.assertIn("replies[2]: the replies up to here have more than 4194304 tokens together; repeat less", line)
        self.assertIn(path.removeprefix("script:"), line)

    def test_script_replies(self):
        line = self.serve_refuses(self.script({"replies": [{"pieces": ["a"]}] * 10_001}))
        self.assertIn("10000", line)

    def test_prompt_on_stdin(self):
        self.tiny()
        line = self.refused(2, "run", "tiny", stdin="x" * (16 * MIB + 1))
        self.assertIn("16 MiB", line)

    def test_flags(self):
        for flag, most in (("--port", 65535), ("--max-waiting", 1_000_000), ("--threads", 256)):
            line = self.refused(2, "serve", flag, str(most + 1))
            self.assertIn(f"{flag}: '{most + 1}' must be a whole number from 0 to {most}", line)

    def shape(self, code=1, **changes):
        """Why a folder whose config.json has these values is not served."""
        config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
                  "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 32, "max_position_embeddings": 128,
                  "hidden_act": "silu", "rms_norm_eps": 1e-5}
        folder = self.models / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config | changes))
        header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        return self.serve_refuses("folder", code=code)

    def test_shape_of_a_model(self):
        self.assertIn("tokenizer.json is missing", self.shape(code=3), "nothing else is wrong with it")
        for changes, said in (({"num_hidden_layers": 1025}, "block count is 1025; it must be between 1 and 1024"),
                              ({"hidden_size": 131104}, "embedding length is 131104; it must be between 32 and 131072"),
                              ({"intermediate_size": 524320}, "feed-forward length is 524320; it must be between 32 and 524288"),
                              ({"vocab_size": 4194305}, "vocabulary size is 4194305; it must be between 2 and 4194304"),
                              ({"max_position_embeddings": 16777217}, "context length is 16777217; it must be between 2 and 16777216"),
                              ({"head_dim": 272}, "head dimension is 272; it must be between 16 and 256"),
                              ({"num_attention_heads": 17, "head_dim": 16}, "whole groups of at most 16 are supported")):
            line = self.shape(**changes)
            self.assertIn(said, line)
            self.assertIn(str(self.models / "folder"), line)


main()

"""Goal: list, show and rm work on a models folder and never leave it (field fault O-39)."""

import json
import os
import struct
import pty
import socket

from harness import HEADRACE, CliTest, main


class Models(CliTest):
    def test_list(self):
        self.assertEqual(self.ok("list"), "")
        self.tiny()
        self.tiny("other.Q4_K.gguf")
        (self.models / "half.gguf.part").write_bytes(b"x")
        names = [line.split()[0] for line in self.ok("list").splitlines()[1:]]
        self.assertEqual(names, ["half", "other.Q4_K", "tiny"])
        listed = json.loads(self.ok("ls", "--json"))
        self.assertEqual([m["partial"] for m in listed], [True, False, False])
        self.assertEqual(listed[2]["bytes"], (self.models / "tiny.gguf").stat().st_size)

    def test_show(self):
        path = self.tiny()
        for name in ("tiny", "tiny.gguf", str(path), os.path.relpath(path, self.root / "cwd")):
            facts = json.loads(self.ok("show", name, "--json"))
            self.assertEqual((facts["architecture"], facts["context"], facts["licence"]), ("llama", 128, "cc0-1.0"))
            self.assertEqual((facts["parameters"], facts["tensor_types"]), (8 * 32 + 32 * 32, {"F32": 2}))
            self.assertEqual((facts["tokenizer"], facts["vocabulary"]), ("gpt2 / smollm", 8))
            self.assertEqual(facts["memory_plan"]["kv_bytes_per_token"], 2 * (2 * 16 + 4))
        text = self.ok("show", "tiny")
        for part in ("architecture", "chat template", "sha256 ", "memory plan"):
            self.assertIn(part, text)

    def test_show_of_a_folder_has_its_template_and_sampling_defaults(self):
        folder = self.models / "folder"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 1,
            "vocab_size": 32, "max_position_embeddings": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
        (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.25, "top_k": 40, "eos_token_id": 1}))
        header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        facts = json.loads(self.ok("show", "folder", "--json"))
        self.assertTrue(facts["chat_template"].startswith("sha256 "), facts)
        self.assertEqual(facts["sampling_defaults"], {"temperature": 0.25, "top_k": 40})
        self.assertIn("tokenizer.json is missing", facts["not_servable"])
        self.assertRegex(self.ok("show", "folder"), r"sampling defaults +temperature 0.25, top_k 40")

    def test_show_names_what_serve_would_refuse(self):
        whole = self.tiny().read_bytes()
        (self.models / "odd.gguf").write_bytes(whole.replace(b"smollm", b"smolXX"))
        self.assertIn("smolXX", json.loads(self.ok("show", "odd", "--json"))["not_servable"])

    def test_show_of_broken_and_missing_files(self):
        self.assertIn("near: tiny", (self.tiny(), self.refused(3, "show", "tinny"))[1])
        self.assertIn("headrace pull smollm2", self.refused(3, "show", "smollm2"))
        (self.models / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
        self.assertIn("bad.gguf", self.refused(1, "show", "bad"))
        whole = self.tiny().read_bytes()
        (self.models / "cut.gguf").write_bytes(whole[:200])
        self.refused(1, "show", "cut")

    def test_hostile_names_read_and_remove_nothing(self):
        (self.root / "outside.gguf").write_bytes(b"keep")
        (self.models / "link.gguf").symlink_to(self.root / "outside.gguf")
        before = sorted(str(p) for p in self.root.rglob("*"))
        for name in ("..%2foutside", "sha256:../outside", "a" * 5000, "outside.", "..", "link", "link.gguf"):
            self.refused(2, "rm", "--yes", name)
            if name != "..":
                self.refused(3 if "/" in name else 2, "show", name)
        for name in ("../outside", "../outside.gguf", str(self.root / "outside.gguf"), "./outside"):
            self.assertIn("by hand", self.refused(2, "rm", "--yes", name))
        self.assertEqual(before, sorted(str(p) for p in self.root.rglob("*")))

    def test_rm(self):
        self.tiny()
        self.assertIn("give --yes", self.refused(2, "rm", "tiny", stdin="y\n"))
        self.assertTrue((self.models / "tiny.gguf").exists())
        self.assertIn("removed tiny", self.ok("rm", "tiny", "--yes"))
        self.assertFalse((self.models / "tiny.gguf").exists())
        self.refused(3, "rm", "tiny")
        (self.models / "half.gguf.part").write_bytes(b"x")
        (self.models / "half.gguf.part.source").write_bytes(b"x")
        self.ok("rm", "--yes", "half")
        self.assertEqual(list(self.models.iterdir()), [])

    def answer_on_terminal(self, text):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(HEADRACE, [HEADRACE, "rm", "tiny"], self.environment())
        os.write(terminal, text)
        try:
            while os.read(terminal, 1024):
                pass
        except OSError:  # the end of a terminal
            pass
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_rm_asks_on_a_terminal(self):
        path = self.tiny()
        self.assertEqual(self.answer_on_terminal(b"n\n"), 1)
        self.assertTrue(path.exists())
        self.assertEqual(self.answer_on_terminal(b"y\n"), 0)
        self.assertFalse(path.exists())

    def test_doctor(self):
        text = self.ok("doctor")
        for part in ("processor", "kernels usable", "kernels chosen", "memory free", "cgroup limits", "port 8080", "models folder", "fingerprint"):
            self.assertIn(part, text)
        self.assertIn("kernels chosen   reference, as told by HEADRACE_ISA", self.ok("doctor", env={"HEADRACE_ISA": "reference"}))
        self.assertNotIn("\x1b", text)

    def test_doctor_looks_at_the_port_that_is_asked_for(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for arguments, env in ((["--port", port], None), ([], {"HEADRACE_PORT": port})):
                done = self.run_program("doctor", *arguments, env=env)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stdout, rf"! port {port} +Address already in use")
        self.assertRegex(self.ok("doctor", "--port", "0"), "port 0 +any free one")


main()

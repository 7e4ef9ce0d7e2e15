"""Goal: a model without a chat template completes text and says so, and a chat with it is refused with what to do instead."""

from harness import CliTest, main

MESSAGES = [{"role": "user", "content": "abc"}]


class BaseModel(CliTest):
    def setUp(self):
        super().setUp()
        self.tiny("base.gguf", "base")
        self.template = self.root / "t.jinja"
        self.template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}z")

    def test_run_completes_text_and_says_so_on_stderr(self):
        done = self.run_program("run", "base", "abc", "--temperature", "0", "--max-tokens", "5")
        self.assertEqual((done.returncode, done.stdout), (0, "ccccc\n"), done.stderr)
        for part in ("no chat template", "continues your text", "up to 5 tokens", "--chat-template FILE"):
            self.assertIn(part, done.stderr)
        self.assertNotIn("system prompt", done.stderr)
        done = self.run_program("run", "base", "abc", "--temperature", "0", "--system", "Be brief.")
        self.assertIn("It does not see the system prompt.", done.stderr)

    def test_run_with_a_template_is_a_chat(self):
        done = self.run_program("run", "base", "abc", "--temperature", "0", "--max-tokens", "5", "--chat-template", str(self.template))
        self.assertEqual((done.returncode, done.stdout), (0, "zzzzz\n"), done.stderr)
        self.assertNotIn("no chat template", done.stderr)

    def test_serve_refuses_chats_and_completes(self):
        with self.served("base") as ask:
            for more in ({}, {"stream": True}):
                status, answer = ask("/v1/chat/completions", {"model": "base", "messages": MESSAGES, **more})
                self.assertEqual(status, 400)
                self.assertEqual(answer["error"]["param"], "messages")
                for part in ("no chat template", "/v1/completions", "--chat-template FILE"):
                    self.assertIn(part, answer["error"]["message"])
            self.assertEqual(ask("/tokenize", {"messages": MESSAGES})[0], 400)
            status, answer = ask("/v1/completions", {"model": "base", "prompt": "abc", "temperature": 0, "max_tokens": 5})
            self.assertEqual((status, answer["choices"][0]["text"]), (200, "ccccc"))

    def test_serve_with_a_template_chats(self):
        with self.served("base", "--chat-template", str(self.template)) as ask:
            status, answer = ask("/v1/chat/completions", {"model": "base", "messages": MESSAGES, "temperature": 0, "max_tokens": 3})
            self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, "zzz"))


main()

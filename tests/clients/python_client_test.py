"""Goal: the official Python client, curl and `headrace run` work against the real program and the default model: the capital of France,
streamed and not, alone and among 8 others; errors arrive as the client's own exception classes; seeds, log-probabilities,
several choices and stop strings keep their promises."""

import concurrent.futures
import json
import subprocess
import unittest

import served

served.python_with_packages()
import openai  # noqa: E402  (after the interpreter that has it was chosen)

MODEL = served.test_model()
MESSAGES = [{"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is the capital of France?"}]
OTHERS = ["Write a poem about rivers.", "Count to twenty.", "Explain gravity.", "Name five birds.",
          "What is a compiler?", "Tell me a story.", "List the planets.", "How do I bake bread?"]


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = served.Served(MODEL)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"serve ended with {code}: {cls.server.final_log[-2000:]}")

    def chat(self, messages=None, **more):
        more.setdefault("temperature", 0)
        return self.client.chat.completions.create(model=served.MODEL_NAME, messages=messages or MESSAGES, **more)

    def streamed(self, messages=None, **more):
        chunks = list(self.chat(messages, stream=True, **more))
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks

    def curl(self, body):
        return subprocess.run(["curl", "-sSN", "--noproxy", "*", "--max-time", "120", self.server.url + "/v1/chat/completions",
                               "-H", "Content-Type: application/json", "-d", json.dumps(body)],
                              check=True, capture_output=True, text=True).stdout

    def test_paris_alone_whole_and_streamed(self):
        whole = self.chat()
        text, chunks = self.streamed(stream_options={"include_usage": True})
        self.assertRegex(whole.choices[0].message.content, r"\bParis\b")
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage, whole.usage)
        self.assertTrue(whole.system_fingerprint)

    def test_paris_through_curl(self):
        body = {"model": served.MODEL_NAME, "messages": MESSAGES, "temperature": 0}
        text = json.loads(self.curl(body))["choices"][0]["message"]["content"]
        self.assertIn("Paris", text)
        events = [line[6:] for line in self.curl({**body, "stream": True}).splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(text, "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events[:-1]))

    def test_paris_through_run(self):
        command = [served.binary(), "run", MODEL, "--system", MESSAGES[0]["content"], "--temperature", "0"]
        answer = self.chat().choices[0].message.content
        argument = subprocess.run([*command, MESSAGES[1]["content"]], capture_output=True, text=True, timeout=120, check=True,
                                  stdin=subprocess.DEVNULL)
        self.assertEqual(argument.stdout.strip(), answer.strip())
        piped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, input=MESSAGES[1]["content"])
        self.assertEqual(piped.stdout, argument.stdout)
        self.assertIn("Paris", answer)

    def test_paris_among_eight_others(self):
        alone = self.chat().choices[0].message.content
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            others = [pool.submit(self.chat, [{"role": "user", "content": text}], max_tokens=80, temperature=1) for text in OTHERS]
            whole, stream = pool.submit(self.chat), pool.submit(self.streamed)
            self.assertEqual(whole.result().choices[0].message.content, alone)
            self.assertEqual(stream.result()[0], alone)
            for other in others:
                self.assertTrue(other.result().choices[0].message.content)

    def test_seeds(self):
        def draw(seed):
            return self.chat(temperature=1, seed=seed, max_tokens=24).choices[0].message.content
        self.assertEqual(draw(42), draw(42))
        self.assertGreater(len({draw(seed) for seed in range(4)}), 1)
        self.assertEqual(self.streamed(temperature=1, seed=42, max_tokens=24)[0], draw(42))

    def test_logprobs_rejoin(self):
        choice = self.chat([{"role": "user", "content": "Write 'ä🌍é' and three emoji."}], logprobs=True, top_logprobs=3,
                           max_tokens=24).choices[0]
        joined = b"".join(bytes(token.bytes) for token in choice.logprobs.content)
        self.assertEqual(joined.decode("utf-8", "replace"), choice.message.content)
        for token in choice.logprobs.content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.token, token.top_logprobs[0].token)  # greedy

    def test_two_choices(self):
        answer = self.chat(n=2, temperature=1, seed=1, max_tokens=16)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertNotEqual(answer.choices[0].message.content, answer.choices[1].message.content)
        self.assertEqual(answer.usage.completion_tokens <= 32, True)
        texts = ["", ""]
        for chunk in self.chat(n=2, temperature=1, seed=1, max_tokens=16, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        self.assertEqual(texts, [c.message.content for c in answer.choices])

    def test_stop_strings(self):
        whole = self.chat().choices[0].message.content
        before = whole[:whole.index("Paris")]
        for text in (self.chat(stop="Paris").choices[0].message.content, self.streamed(stop=["nowhere", "Paris"])[0]):
            self.assertEqual(text, before)

    def test_completions(self):
        answer = self.client.completions.create(model=served.MODEL_NAME, prompt=["The sky is", "Water is"], max_tokens=4,
                                                temperature=0, logprobs=2, echo=True)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertTrue(answer.choices[0].text.startswith("The sky is"))
        self.assertIsNone(answer.choices[0].logprobs.token_logprobs[0])
        self.assertEqual("".join(answer.choices[1].logprobs.tokens), answer.choices[1].text)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [served.MODEL_NAME])
        self.assertEqual(self.client.models.retrieve(served.MODEL_NAME).id, served.MODEL_NAME)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(openai.NotFoundError) as e:
            self.client.chat.completions.create(model="other", messages=MESSAGES)
        self.assertEqual(e.exception.code, "model_not_found")
        self.assertTrue(e.exception.request_id)
        with self.assertRaises(openai.BadRequestError) as e:
            self.chat(temperature=9)
        self.assertEqual(e.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as e:
            self.chat([{"role": "user", "content": "word " * 20000}])
        self.assertEqual(e.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as e:
            self.streamed([{"role": "user", "content": "word " * 20000}])
        self.assertRegex(str(e.exception), r"maximum context length is \d+ tokens")

    def test_a_left_stream_frees_its_slot(self):
        stream = self.chat([{"role": "user", "content": "Count to one thousand."}], stream=True, max_tokens=2000)
        next(iter(stream))
        stream.close()
        self.assertLess(self.server.wait_idle(2), 2)


class KeyTest(unittest.TestCase):
    def test_wrong_key(self):
        server = served.Served(MODEL, "--api-key", "sk-right")
        try:
            wrong = openai.OpenAI(base_url=server.url + "/v1", api_key="sk-wrong", max_retries=0)
            with self.assertRaises(openai.AuthenticationError) as e:
                wrong.models.list()
            self.assertEqual(e.exception.code, "invalid_api_key")
            right = openai.OpenAI(base_url=server.url + "/v1", api_key="sk-right", max_retries=0)
            self.assertEqual(len(right.models.list().data), 1)
        finally:
            server.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)

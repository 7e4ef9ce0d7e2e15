"""Goal: field fault O-06: the comments that keep a silent stream alive break neither official client. A scripted model is silent
before its first word and between its words for several times --keep-alive, so comments stand everywhere they can."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import served

served.python_with_packages()
import openai  # noqa: E402  (after the interpreter that has it was chosen)

NODE = os.environ.get("HEADRACE_NODE") or shutil.which("node")
TEXT = "one two three"
# About 40 tokens of prompt: more than half a second of prefill.
SCRIPT = {"step_ms": 1, "prefill_us_per_token": 15_000, "replies": [{"pieces": ["one", " two", " three"], "delay_ms": 300}]}
BODY = {"model": served.MODEL_NAME, "messages": [{"role": "user", "content": "x"}], "stream": True}
READ_ALL = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[1] + "/v1", apiKey: "any", maxRetries: 0 });
let text = "";
for await (const chunk of await client.chat.completions.create(JSON.parse(process.argv[2]))) text += chunk.choices[0]?.delta?.content ?? "";
console.log(JSON.stringify(text));
"""


class KeepAliveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(SCRIPT, file)
            file.flush()
            cls.server = served.Served(f"script:{file.name}", "--keep-alive", "100ms")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_comments_stand_between_events(self):
        status, _, body = self.server.request("POST", "/v1/chat/completions", BODY)
        self.assertEqual(status, 200)
        events = body.split("\n\n")
        self.assertEqual(events.pop(), "", "the last event is whole")
        before_text = events.index(next(event for event in events if '"one"' in event))
        self.assertGreater(sum(event == ": ping" for event in events[:before_text]), 2, "while the prompt is computed")
        self.assertGreater(sum(event == ": ping" for event in events[before_text:]), 2, "while the answer pauses")
        self.assertTrue(all(event == ": ping" or re.fullmatch(r"data: \S.*", event) for event in events), events)

    def test_python(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="any", max_retries=0)
        with client:
            chunks = list(client.chat.completions.create(**BODY))
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), TEXT)
            with client.chat.completions.with_streaming_response.create(**BODY) as answer:
                self.assertIn(": ping", answer.text(), "the client has seen comments")

    @unittest.skipUnless(NODE and (served.HERE / "node_modules/openai").is_dir(), "no node, or no openai for it; ./dev setup brings both")
    def test_javascript(self):
        done = subprocess.run([NODE, "--input-type=module", "-e", READ_ALL, self.server.url, json.dumps(BODY)], cwd=served.HERE,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), TEXT)


if __name__ == "__main__":
    unittest.main(verbosity=2)

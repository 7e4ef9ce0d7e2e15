"""Goal: the official JavaScript client works against the real program and the default model (javascript_client.mjs)."""

import os
import shutil
import subprocess
import unittest

import served

NODE = os.environ.get("HEADRACE_NODE") or shutil.which("node")
if not NODE:
    served.skip("no node; ./dev setup brings one")
if not (served.HERE / "node_modules/openai").is_dir():
    served.skip("tests/clients/node_modules has no openai; ./dev setup installs it")
MODEL = served.test_model()


class JavaScriptClientTest(unittest.TestCase):
    def test_all(self):
        server = served.Served(MODEL)
        try:
            subprocess.run([NODE, served.HERE / "javascript_client.mjs", server.url, served.MODEL_NAME], check=True, timeout=600)
            self.assertLess(server.wait_idle(2), 2)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

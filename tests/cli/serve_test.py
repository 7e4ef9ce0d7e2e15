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
        self.refused(3, "serve", "./none.gguf")

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

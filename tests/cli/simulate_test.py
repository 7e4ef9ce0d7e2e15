"""Goal: simulate reads traces and step costs, draws traffic, repeats itself, and says what it cannot take; bench calibrate writes what it reads."""

import json

from harness import CliTest, main

MOONCAKE = "".join(json.dumps({"timestamp": 3000 * (i // 4), "input_length": 700 + i, "output_length": 5, "hash_ids": [0, i + 1]}) + "\n" for i in range(40))


class Simulate(CliTest):
    def report(self, *flags):
        return json.loads(self.ok("simulate", *flags, "--json"))

    def test_drawn_traffic_repeats(self):
        first = self.report("--requests", "50", "--rate", "5", "--seed", "3", "--tenants", "3", "--check")
        again = self.report("--requests", "50", "--rate", "5", "--seed", "3", "--tenants", "3")
        self.assertEqual(first["events_hash"], again["events_hash"])
        self.assertEqual(first["finished"], 50)
        self.assertNotEqual(first["events_hash"], self.report("--requests", "50", "--rate", "5", "--seed", "4", "--tenants", "3")["events_hash"])
        faulty = self.report("--requests", "200", "--rate", "5", "--faults", "--check")
        self.assertGreater(faulty["cancelled"], 10)

    def test_traces(self):
        path = self.root / "trace.jsonl"
        path.write_text(MOONCAKE)
        recorded = self.report("--trace", str(path))
        self.assertEqual(recorded["finished"], 40)
        self.assertGreater(recorded["hit_rate"], 0.5)  # the first block of each is the same
        slow = self.report("--trace", str(path), "--speed", "0.5", "--requests", "20")
        self.assertEqual(slow["finished"], 20)
        spread = self.report("--trace", str(path), "--arrivals", "spread")
        self.assertLess(spread["ttft_ms"]["p90"], recorded["ttft_ms"]["p90"])
        text = self.ok("simulate", "--trace", str(path))
        for part in ("TTFT", "attainment", "hit rate", "preemptions", "fairness", "x real time"):
            self.assertIn(part, text)

    def test_calibrate_writes_what_simulate_reads(self):
        self.tiny("base.gguf", "base")
        cost = self.root / "cost.json"
        text = self.ok("bench", "calibrate", "base", "--repeat", "1", "--threads", "1", "--output", str(cost))
        self.assertIn("| prompt rows |", text)
        self.assertEqual(json.loads(self.ok("bench", "calibrate", "base", "--repeat", "1", "--threads", "1", "--format", "json"))["headrace_step_cost"], 1)
        fast = self.report("--cost", str(cost), "--requests", "20")
        slow = self.report("--cost", str(cost), "--requests", "20", "--step-us", "100000")
        self.assertLess(fast["e2e_ms"]["p50"], slow["e2e_ms"]["p50"])

    def test_mistakes(self):
        no_trace = self.root / "x.txt"
        no_trace.write_text("hello")
        self.assertIn("no trace that Headrace reads", self.refused(2, "simulate", "--trace", str(no_trace)))
        self.assertIn("JSON", self.refused(2, "simulate", "--cost", str(no_trace)))
        self.refused(3, "simulate", "--trace", str(self.root / "nowhere"))
        for flag, value in (("--speed", "0"), ("--rate", "-1"), ("--kv-tokens", "63"), ("--arrivals", "all"), ("--step-us", "0"), ("--requests", "-1")):
            self.assertIn(flag, self.refused(2, "simulate", flag, value))


main()

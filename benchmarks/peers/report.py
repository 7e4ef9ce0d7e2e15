#!/usr/bin/env python3
"""Prints a results file of run_peer.py and engine_llamacpp.py as compact Markdown tables. Usage: report.py results.json > results.md"""
import json
import sys

COLUMNS = [  # head, scenario, value of its median
    ("A bs1 tok/s (ITL ms)", "A", lambda m: f"{m['output_tok_s_user']} ({m['itl_ms_p50']})"),
    ("A TTFT ms", "A", lambda m: f"{m['ttft_ms_p50']:.0f}"),
    ("B 8x tok/s", "B", lambda m: f"{m['output_tok_s']:.0f}"),
    ("B TTFT p50 / ITL p50 / p99 ms", "B", lambda m: f"{m['ttft_ms_p50']:.0f} / {m['itl_ms_p50']:.0f} / {m['itl_ms_p99']:.0f}"),
    ("C 32x tok/s", "C", lambda m: f"{m['output_tok_s']:.0f}"),
    ("C TTFT p50 / ITL p50 / p99 ms", "C", lambda m: f"{m['ttft_ms_p50']:.0f} / {m['itl_ms_p50']:.0f} / {m['itl_ms_p99']:.0f}"),
    ("D prefill 1024 tok/s", "D", lambda m: f"{m['prompt_tok_s']:.0f}"),
    ("E TTFT cold / warm ms", "E", lambda m: f"{m['ttft_cold_ms']:.0f} / {m['ttft_warm_ms_p50']:.0f}"),
    ("E burst of 8: TTFT p50 / wall s", "E", lambda m: f"{m['burst_ttft_ms_p50'] / 1e3:.1f} / {m['burst_wall_s']:.1f}"),
    ("F gap p99 idle / p99 / max while 3000 prefill ms", "F", 
     lambda m: f"{m['itl_ms_p99_idle']:.0f} / {m['itl_ms_p99_during']:.0f} / {m['gap_ms_max_during']:.0f}"),
    ("F TTFT of the 3000 s", "F", lambda m: f"{m['long_ttft_ms'] / 1e3:.1f}"),
]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join("-" if v is None else str(v) for v in row) + " |")
    print()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        r = json.load(f)
    print(f"# Peers side by side\n\n{r.get('machine', '')}\n")
    servers = r.get("servers", {})
    if servers:
        print("## Servers over HTTP\n")
        row = lambda name, s: [name] + [f(s["scenarios"][k]["median"]) if k in s["scenarios"] else None for _, k, f in COLUMNS]
        table(["engine / model"] + [c[0] for c in COLUMNS], [row(n, s) for n, s in servers.items()])
        print("Start: exec to the first token of a 1-token completion, file in the page cache. "
              "Memory: RSS (shared pages in part) after load and after the run.\n")
        table(["engine / model", "start s", "first start s", "MB after load", "MB after run", "install MB", "cores used", "others used", "client"],
              [[n, s["start_s"], s["start_first_s"], s["after_load"]["rss_mb"], s["after_run"]["rss_mb"], s["install_mb"], s["cpu_cores_used"],
                s["other_cores_used"], s["client_cpu_share"]] for n, s in servers.items()])
    if r.get("engine"):
        print("## llama.cpp's engine without HTTP, tokens a second\n")
        keys = ["prefill_512", "decode_bs1", "decode_bs8", "decode_bs32", "decode_depth_2048"]
        table(["model"] + keys, [[n] + [e[k]["tok_s"] for k in keys] for n, e in r["engine"].items()])
    if r.get("notes"):
        print("## Notes\n")
    for note in r.get("notes", []):
        print("- " + note)


if __name__ == "__main__":
    main()

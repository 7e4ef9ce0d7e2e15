#!/usr/bin/env python3
"""Style is a test: checks the house rules over the working copy.

    tidy.py [--build DIR] [--rule NAME]...   one line for each finding; exit status 1 when there is one
    tidy.py --self-test                      every rule fires on a bad sample and is silent on a good one
"""

import argparse
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import rules  # noqa: E402
import self_test  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=Path, help="build folder with compile_commands.json and the kernels' objects")
    parser.add_argument("--rule", action="append", choices=[rule.__name__ for rule in rules.RULES])
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test.run()

    build = options.build.resolve() if options.build else None
    tree = rules.Tree(options.root.resolve(), build)
    total = 0
    for rule in rules.RULES:
        if options.rule and rule.__name__ not in options.rule:
            continue
        start = time.monotonic()
        findings = list(rule(tree))
        total += len(findings)
        for finding in findings:
            print(finding)
        print(f"tidy: {rule.__name__}: {len(findings)} findings, {time.monotonic() - start:.1f} s", file=sys.stderr)
    print(f"tidy: {total} findings in {len(tree.files)} files")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())

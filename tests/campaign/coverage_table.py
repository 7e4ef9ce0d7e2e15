#!/usr/bin/env python3
"""Makes the table of a coverage campaign: coverage_table.py EXPORT.json [--percent-min N]; EXPORT of llvm-cov export.

Exit status 1 when the total is below N percent of the lines.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORST_FILES = 15
# Tests, fuzz targets and what only they use.
TEST_FILE = re.compile(r"_(test|fuzz|bench|cases)\.(cc|h)$|/test_\w+\.(cc|h)$|/(golden_corpus|seeded_llama)\.(cc|h)$")


def is_ours(name):
    return name.startswith(("src/", "apps/")) and not TEST_FILE.search(name)


def room_of(name):
    return "/".join(name.split("/")[:2])


def read(path):
    """name → (lines, lines that ran)"""
    files = {}
    for entry in json.loads(path.read_text())["data"][0]["files"]:
        file = Path(entry["filename"])
        name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else ""
        if is_ours(name):
            lines = entry["summary"]["lines"]
            files[name] = (lines["count"], lines["covered"])
    return files


def percent(lines, covered):
    return 100 * covered / lines if lines else 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("--percent-min", type=float, default=0)
    options = parser.parse_args()
    files = read(options.export)
    rooms = defaultdict(lambda: (0, 0))
    for name, (lines, covered) in files.items():
        rooms[room_of(name)] = tuple(map(sum, zip(rooms[room_of(name)], (lines, covered))))
    lines, covered = map(sum, zip(*files.values()))

    print("line coverage by room")
    for room, (room_lines, room_covered) in sorted(rooms.items()):
        print(f"  {room:<16} {room_lines:6d} lines {percent(room_lines, room_covered):6.1f} %")
    print(f"  {'total':<16} {lines:6d} lines {percent(lines, covered):6.1f} %")
    print("most lines that no test runs")
    worst = sorted(files.items(), key=lambda item: item[1][1] - item[1][0])[:WORST_FILES]
    for name, (file_lines, file_covered) in worst:
        print(f"  {name:<44} {file_lines - file_covered:4d} of {file_lines:4d}")
    # A source that no program links has no data: it would be missing from the sum without a word.
    sources = {str(path.relative_to(ROOT)) for top in ("src", "apps") for path in (ROOT / top).rglob("*.cc")}
    missing = sorted(name for name in sources if is_ours(name) and name not in files)
    if missing:
        print("in no program: " + ", ".join(missing))
    return 1 if percent(lines, covered) < options.percent_min else 0


if __name__ == "__main__":
    sys.exit(main())

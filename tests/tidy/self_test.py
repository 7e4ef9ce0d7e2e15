"""Proof that the rules can fail: each case is a small tree, a rule, and how many findings it must have."""

import os
import subprocess
import tempfile
from pathlib import Path

import cpp
import rules

ROOMS = 'set(HEADRACE_FLOORS "0 base" "1 net" "1 queueing" "2 kernels" "2 text" "3 scheduler" "7 gateway")\n'
HEADER = "#pragma once\nint F();\n"
README = "what it is\n"


def room(name, **files):
    """The files of a good room: list, README and what is given."""
    deps = files.pop("deps", "")
    tree = {f"src/{name}/CMakeLists.txt": f"headrace_room({name}\n  SOURCES a.cc DEPS {deps})\n",
            f"src/{name}/README.md": README}
    return tree | {f"src/{name}/{key.replace('_dot_', '.')}": value for key, value in files.items()}


def long_function(lines):
    return "int F(int a) {\n" + "  a += 1;\n" * (lines - 3) + "  return a;\n}\n"


def limits(row="", value="64 KiB", file="src/net/a.h", test="`src/net/a_test.cc`: `A.RefusesMore`", internal="", code="", tests=""):
    """A tree with one limit, its row and its test; what is given replaces or follows what is right."""
    table = row or f"| `kBodyBytesMax` | `{file}` | {value} | a body | 413 | {test} |"
    document = f"# Limits\n| limit | file | value | bounds | told | test |\n|---|---|---|---|---|---|\n{table}\n## Internal\n{internal}\n"
    return {"docs/limits.md": document,
            "src/net/a.h": f"constexpr size_t kBodyBytesMax = 64 * 1024;  // of a body\n{code}",
            "src/net/a_test.cc": tests or "TEST(A, RefusesMore) {}\n"}


OPTIONS = "struct NetOptions {\n  size_t own_max = 0;\n  size_t header_bytes_max = 1 << 16;\n};\n"
OPTIONS_ROW = "| `NetOptions::header_bytes_max` | `src/net/a.h` | why |"
FLAG = '    OptionSpec{"ctx", "size", kInteger, kLimits, kLoads, "N", "0",\n               "longest, of all", 0, 1 << 24},\n'


def flag_limit(value):
    row = f"| `--ctx` | `src/config/t.cc` | {value} | tokens | exit 2 | `src/net/a_test.cc`: `A.RefusesMore` |"
    return limits(row, internal="| `kBodyBytesMax` | `src/net/a.h` | why |") | {"src/config/t.cc": FLAG}


BASE = room("base", a_dot_h=HEADER)
# (what, rule, files, findings)
CASES = [
    ("upward include", rules.floors, BASE | room("net", b_dot_h='#pragma once\n#include "gateway/g.h"\n') |
     {"src/gateway/g.h": HEADER}, 1),
    ("include of the same floor", rules.floors, {"src/net/b.h": '#include "queueing/q.h"\n', "src/queueing/q.h": HEADER}, 1),
    ("include of a missing file", rules.floors, {"src/net/b.h": '#include "base/none.h"\n'}, 1),
    ("a room without a floor", rules.floors, {"src/attic/b.h": HEADER}, 1),
    ("the shim outside text", rules.floors, {"src/gateway/b.cc": '#include "textshim.h"\n'}, 1),
    ("Asio in gateway", rules.floors, {"src/gateway/b.h": "#include <boost/asio/post.hpp>\n"}, 1),
    ("scheduler looks aside", rules.floors, {"src/scheduler/s.h": '#include "net/b.h"\n', "src/net/b.h": HEADER}, 1),
    ("downward include", rules.floors, BASE | {"src/net/b.h": '#include "base/a.h"\n#include <vector>\n'}, 0),
    ("include not in the link list", rules.links, BASE | room("net", b_dot_h='#include "base/a.h"\n'), 1),
    ("include through a named room", rules.links, BASE | room("net", deps="base") |
     room("gateway", deps="net", g_dot_h='#include "base/a.h"\n'), 0),
    ("long header", rules.sizes, {"src/base/a.h": "\n" * 301}, 1),
    ("long source", rules.sizes, {"src/base/a.cc": "\n" * 601}, 1),
    ("long app file", rules.sizes, {"apps/headrace/a.cc": "\n" * 151}, 1),
    ("fair sizes", rules.sizes, {"src/base/a.h": "\n" * 300, "src/base/a.cc": "\n" * 600}, 0),
    ("long function", rules.function_sizes, {"src/base/a.cc": long_function(71)}, 1),
    ("long kernel", rules.function_sizes, {"src/kernels/a.cc": long_function(151)}, 1),
    ("fair functions", rules.function_sizes,
     {"src/base/a.cc": long_function(70), "src/kernels/a.cc": long_function(150)}, 0),
    ("long method behind an initialiser list", rules.function_sizes,
     {"src/base/a.h": "namespace n {\nclass C : public B {\n public:\n  C(int x) : a_{x}, b_(x) {\n" + "    f();\n" * 70 +
      "  }\n};\n}\n"}, 1),
    ("long lambda inside a function", rules.function_sizes,
     {"src/base/a.cc": "void F() {\n  auto g = [](int x) {\n" + "    f();\n" * 70 + "  };\n}\n"}, 1),
    ("long table is no function", rules.function_sizes,
     {"src/base/a.cc": "const int kTable[] = {\n" + "  1,\n" * 90 + "};\nenum class E {\n" + "  kA,\n" * 90 + "};\n"}, 0),
    ("long class is no function", rules.function_sizes,
     {"src/base/a.h": 'class HR_CAPABILITY("mutex") C {\n' + "  int F() const { return 1; }\n" * 90 + "};\n"}, 0),
    ("braces in strings and comments", rules.function_sizes,
     {"src/base/a.cc": 'int F() { return Str("{"); }  // {\n/* { */\nconst char* k = R"x({)x";\n' + "int a;\n" * 90}, 0),
    ("banned word in a type", rules.banned_words, {"src/base/a.h": "class Session" "Manager;\n"}, 1),
    ("banned word in a function", rules.banned_words, {"src/base/a.h": "void common" "_part();\n"}, 1),
    ("banned word in a file name", rules.banned_words, {"src/base/string_" "util.h": HEADER}, 1),
    ("the word in a comment or of std", rules.banned_words,
     {"src/base/a.h": "// the common case\nusing T = std::common_type_t<int, long>;\nint utility;\n"}, 0),
    ("leftover", rules.leftovers, {"src/base/a.h": "// TO" "DO: later\n"}, 1),
    ("leftover in a script", rules.leftovers, {"dev": "# FIX" "ME\n"}, 1),
    ("no leftover", rules.leftovers, {"a.sh": 'mktemp -d "$T/a.XXXXXX"\n'}, 0),
    ("room without README", rules.readmes, {"src/base/CMakeLists.txt": ""}, 1),
    ("wordy README", rules.readmes, {"src/base/CMakeLists.txt": "", "src/base/README.md": "\n" * 41}, 1),
    ("fair README", rules.readmes, BASE, 0),
    ("no pragma", rules.pragma_once, {"src/base/a.h": "int F();\n"}, 1),
    ("pragma", rules.pragma_once, BASE, 0),
    ("header that leans on its includer", rules.headers_alone,
     BASE | {"src/base/a.h": "#pragma once\nstd::string F();\n"}, 1),
    ("header that stands", rules.headers_alone, BASE | {"src/base/a.h": "#pragma once\n#include <string>\nstd::string F();\n"}, 0),
    ("home path", rules.paths_and_hosts, {"docs/a.md": "see /ho" "me/ann/src\n"}, 1),
    ("registry host", rules.paths_and_hosts, {"a.sh": "curl https://py" "pi.org/x\n"}, 1),
    ("clean text", rules.paths_and_hosts, {"docs/a.md": 'see ~/src, "$root/root/x", /etc/headrace, PyPI, crates\n'}, 0),
    ("big file", rules.file_bytes, {"a.bin": "x" * 1_000_001}, 1),
    ("fair file", rules.file_bytes, {"a.bin": "x" * 1_000_000}, 0),
    ("broken script", rules.shell_scripts, {"a.sh": "if true; then\n"}, 1),
    ("broken script by its first line", rules.shell_scripts, {"a": "#!/usr/bin/env bash\nfoo() {\n"}, 1),
    ("dev without its bit", rules.shell_scripts, {"dev": "#!/usr/bin/env bash\n"}, 1),
    ("good script", rules.shell_scripts, {"a.sh": "echo yes\n"}, 0),
    ("true table of limits", rules.limits, limits(), 0),
    ("no table of limits", rules.limits, {}, 1),
    ("limit of another value", rules.limits, limits(value="65,537 bytes"), 1),
    ("limit that moved", rules.limits, limits(file="src/net/b.h"), 2),
    ("limit without a test", rules.limits, limits(test="none"), 1),
    ("limit whose test was renamed", rules.limits, limits(tests="TEST(A, RefusesLess) {}\n"), 1),
    ("limit tested in Python", rules.limits, limits(test="`tests/cli/a.py`: `A.test_more`") |
     {"tests/cli/a.py": "class A(CliTest):\n    def test_more(self):\n"}, 0),
    ("row with a cell too few", rules.limits, limits("| `kBodyBytesMax` | `src/net/a.h` | 64 KiB | a body | 413 |"), 1),
    ("maximum that nobody lists", rules.limits, limits(code="static constexpr int64_t kNewMax = 3;\n"), 1),
    ("maximum that is internal", rules.limits,
     limits(code="constexpr int kNewMax = 3;\n", internal="| `kNewMax` | `src/net/a.h` | why |"), 0),
    ("tile of a kernel", rules.limits, limits() | {"src/kernels/avx2/a.cc": "constexpr int kRowsMax = 8;\n"}, 0),
    ("internal without a reason", rules.limits,
     limits(code="constexpr int kNewMax = 3;\n", internal="| `kNewMax` | `src/net/a.h` |"), 1),
    ("internal that is gone", rules.limits, limits(internal="| `kOldMax` | `src/net/a.h` | why |"), 1),
    ("option that nobody lists", rules.limits, limits(code=OPTIONS), 1),
    ("option that is listed", rules.limits, limits(code=OPTIONS, internal=OPTIONS_ROW), 0),
    ("range of a flag", rules.limits, flag_limit("0 to 16,777,216"), 0),
    ("another range of a flag", rules.limits, flag_limit("1 to 16,777,216"), 1),
    ("weak symbol for one instruction set", rules.isa_objects, {"avx2": "inline int G(int x) { return x * 3; }\n"
     "int (*F())(int) { return G; }\n"}, 1),
    ("clean object", rules.isa_objects, {"avx2": "static int G(int x) { return x * 3; }\nint F(int x) { return G(x); }\n"}, 0),
]


def lay(root, files):
    for name, content in ({"cmake/Room.cmake": ROOMS} | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    build = root / "build"
    build.mkdir()
    source = root / "src/base/a.cc"
    (build / "compile_commands.json").write_text(
        f'[{{"file": "{source}", "command": "clang++-19 -std=c++23 -I{root}/src -o a.o -c {source}"}}]')
    if "avx2" in files:
        target = build / "src/kernels/avx2/a.cc.o"
        target.parent.mkdir(parents=True)
        subprocess.run(["clang++-19", "-O0", "-x", "c++", "-c", root / "avx2", "-o", target], check=True)
    return build


def run():
    failures = []
    for what, rule, files, expected in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            build = lay(root, files)
            found = list(rule(rules.Tree(root, build)))
        if len(found) != expected:
            failures.append(f"{rule.__name__}: {what}: {len(found)} findings, expected {expected}: "
                            + "; ".join(map(str, found)))
    failures += [f"no bad sample for rule {rule.__name__}" for rule in rules.RULES
                 if not any(case[1] is rule and case[3] for case in CASES)]
    failures += scanner_failures()
    for failure in failures:
        print(failure)
    print(f"tidy self-test: {len(CASES) + 1} cases, {len(failures)} failures")
    return 1 if failures else 0


def scanner_failures():
    """The function scanner on the shapes that misled it once."""
    code = """
template <typename T> requires std::integral<T> T Twice(T x) { return x + x; }
TEST(SuiteTest, NamesItself) {
  EXPECT_EQ(1, 1);
}
struct stat Ask(const char* path) { return {}; }
Foo::Foo(int a) : a_{a}, b_(a) { Go(); }
auto Bar::Get() const -> Result<int> { return 1; }
bool operator<(const A& a, const B& b) { return true; }
extern "C" {
int c_name(struct stat* s) { return 0; }
}
std::array<int, 2> values{1, 2};
int digits = 1'000; char brace = '{';
"""
    names = [function.name for function in cpp.functions(cpp.drop_preprocessor(cpp.blank(code)))]
    expected = ["Twice", "SuiteTest.NamesItself", "Ask", "Foo::Foo", "Bar::Get", "operator<", "c_name"]
    return [] if names == expected else [f"scanner: {names}, expected {expected}"]

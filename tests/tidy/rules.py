"""The house rules. Each takes a Tree and yields Findings; RULES at the end names them all."""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import cpp
import limit_table

LINES_MAX = {".h": 300, ".cc": 600, ".rs": 600, ".py": 600, ".ts": 600}
APP_LINES_MAX = 150
FUNCTION_LINES_MAX = 70
KERNEL_LINES_MAX = 150
README_LINES_MAX = 40
TRACKED_BYTES_MAX = 1_000_000

BANNED_WORDS = {"manager", "helper", "util", "utils", "common", "misc"}
BANNED_WORDS |= {word + "s" for word in BANNED_WORDS}
# The standard library's own names, and the word for what several strings share.
ALLOWED_IDENTIFIERS = {"common_type", "common_type_t", "common_reference", "common_reference_t", "common_with"}

CODE_SUFFIXES = {".h", ".cc", ".py", ".sh", ".rs", ".cmake", ".ts", ".js", ".mjs"}
LEFTOVER = re.compile(r"\b(FIX" r"ME|XX" r"X|TO" r"DO)\b")
HOME_PATH = re.compile(r"(?<![\w)}$.~*-])/(?:root|home|Users)/[\w.-]+|(?<![\w)}$.~*-])/work/(?:main|shared)\b")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi|(?:files\.)?pythonhosted|test\.pypi|(?:static\.|index\.)?crates|"
    r"(?:deb|security|snapshot|ftp)\.debian|registry\.npmjs|registry\.yarnpkg)\.(?:org|io|com|net)\b")

# Beyond the floors: (room, what a file there may not include as it stands in "" or <>, why).
NO_GO = [
    (lambda room: room != "text", re.compile(r'^["<]textshim\.h'), "only text/ includes the Rust shim's header"),
    (lambda room: room == "gateway", re.compile(r'^["<]boost/(asio|beast)'), "gateway/ is free of Asio types"),
    (lambda room: room == "api", re.compile(r'^["<](boost/(asio|beast)|sys/socket\.h|fstream)'), "api/ does no I/O"),
    (lambda room: room == "scheduler", re.compile(r'^"(?!base/|kv_cache/|queueing/|scheduler/)[a-z_0-9]+/'),
     "scheduler/ uses base, kv_cache and queueing only"),
]


@dataclass
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


@dataclass
class Tree:
    """A working copy: tracked and new files, their text, the build folder whose flags and objects are used."""
    root: Path
    build: Path | None = None
    texts: dict = field(default_factory=dict)

    def __post_init__(self):
        listed = subprocess.run(["git", "-C", self.root, "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            names = listed.stdout.split("\0")
        else:  # an unpacked archive
            skipped = {"build", "models", ".git", "node_modules", "__pycache__"}
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")
                     if not skipped & set(path.relative_to(self.root).parts)]
        self.files = sorted(name for name in set(names) if name and (self.root / name).is_file())

    def text(self, name):
        if name not in self.texts:
            self.texts[name] = (self.root / name).read_text(encoding="utf-8", errors="replace")
        return self.texts[name]

    def cpp_files(self, *tops):
        return [name for name in self.files
                if name.endswith((".h", ".cc")) and name.split("/")[0] in (tops or ("src", "apps", "tests", "benchmarks"))]

    def rooms(self):
        """Rooms that exist: src folders with a CMakeLists.txt."""
        return sorted(path.parent.name for path in self.root.glob("src/*/CMakeLists.txt"))

    def floors(self):
        table = self.text("cmake/Room.cmake")
        return {room: int(floor) for floor, room in re.findall(r'"(\d+) (\w+)"', table)}


# ---- floors --------------------------------------------------------------------------------------------------------

def floors(tree):
    """The include graph of src/ against the table in cmake/Room.cmake."""
    floor_of = tree.floors()
    for name in tree.cpp_files("src"):
        room = name.split("/")[1]
        if room not in floor_of:
            yield Finding(name, 1, "floors", f"room {room} is not in the table of cmake/Room.cmake")
            continue
        for line, path, quoted in cpp.includes(tree.text(name)):
            for applies, pattern, why in NO_GO:
                if applies(room) and pattern.search(('"' if quoted else "<") + path):
                    yield Finding(name, line, "floors", f"includes {path}: {why}")
            target = path.split("/")[0]
            if not quoted or path == "textshim.h":
                continue
            if not (tree.root / "src" / path).is_file():
                yield Finding(name, line, "floors", f"{path} is no file under src/ (paths start there; a library's header goes in <>)")
            elif target != room and floor_of.get(target, 99) >= floor_of[room]:
                yield Finding(name, line, "floors", f"{room} (floor {floor_of[room]}) may not include {path} "
                                                    f"(floor {floor_of.get(target, '?')})")


def links(tree):
    """What a room includes, its link list names, itself or through a room that it names."""
    declared, for_tests = {}, {}
    for room in tree.rooms():
        text = re.sub(r"#[^\n]*", "", tree.text(f"src/{room}/CMakeLists.txt"))
        call = re.search(r"headrace_room\(\s*" + room + r"\b(.*?)\)", text, re.S)
        words = re.findall(r"[^\s]+", call.group(1)) if call else []
        lists, key = {}, None
        for word in words:
            if re.fullmatch(r"SOURCES|DEPS|LIBS|TESTS|TEST_DEPS|FUZZ", word):
                key = word
            elif key:
                lists.setdefault(key, set()).add(word)
        declared[room] = lists.get("DEPS", set())
        for_tests[room] = lists.get("TEST_DEPS", set())

    def reach(rooms):
        seen, todo = set(), list(rooms)
        while todo:
            room = todo.pop()
            if room not in seen:
                seen.add(room)
                todo += declared.get(room, ())
        return seen

    for name in tree.cpp_files("src"):
        room = name.split("/")[1]
        if room not in declared:
            continue
        is_test = re.search(r"_(test|fuzz|bench)\.cc$|/testing/|_testing\.h$", name)
        allowed = reach(declared[room] | (for_tests[room] if is_test else set())) | {room}
        for line, path, quoted in cpp.includes(tree.text(name)):
            target = path.split("/")[0]
            if quoted and "/" in path and target in declared and target not in allowed:
                yield Finding(name, line, "links", f"includes {path}, but src/{room}/CMakeLists.txt does not name {target}")


# ---- sizes and words -----------------------------------------------------------------------------------------------

def sizes(tree):
    for name in tree.files:
        limit = LINES_MAX.get(Path(name).suffix)
        if name.startswith("apps/") and name.endswith((".h", ".cc")):
            limit = APP_LINES_MAX
        if limit is None:
            continue
        lines = tree.text(name).count("\n")
        if lines > limit:
            yield Finding(name, lines, "sizes", f"{lines} lines, the tripwire is {limit}: split it by the state it owns")


def function_sizes(tree):
    for name in tree.cpp_files():
        limit = KERNEL_LINES_MAX if name.startswith("src/kernels/") else FUNCTION_LINES_MAX
        for function in cpp.functions(cpp.drop_preprocessor(cpp.blank(tree.text(name)))):
            if function.lines > limit:
                yield Finding(name, function.line, "function_sizes",
                              f"{function.name} has {function.lines} lines, the tripwire is {limit}")


def banned_words(tree):
    for name in tree.files:
        for part in Path(name).parts:
            hit = BANNED_WORDS & set(cpp.words_of(part))
            if hit:
                yield Finding(name, 1, "banned_words", f"'{hit.pop()}' in a file name: name what it does")
    for name in tree.cpp_files():
        seen = set()
        code = "\n".join("" if re.match(r"\s*#\s*include", line) else line
                         for line in cpp.blank(tree.text(name)).split("\n"))
        for line, identifier, _ in cpp.identifiers(code):
            hit = BANNED_WORDS & set(cpp.words_of(identifier))
            if hit and identifier not in ALLOWED_IDENTIFIERS and identifier not in seen:
                seen.add(identifier)
                yield Finding(name, line, "banned_words", f"'{hit.pop()}' in {identifier}: name what it does")


def leftovers(tree):
    for name in tree.files:
        if Path(name).suffix in CODE_SUFFIXES or name in ("dev", ".ci/run") or name.endswith("CMakeLists.txt"):
            for number, line in enumerate(tree.text(name).split("\n"), 1):
                match = LEFTOVER.search(line)
                if match:
                    yield Finding(name, number, "leftovers", f"{match.group(1)}: do it, or file it as an issue")


# ---- rooms and headers ---------------------------------------------------------------------------------------------

def readmes(tree):
    for room in tree.rooms():
        name = f"src/{room}/README.md"
        if not (tree.root / name).is_file():
            yield Finding(name, 1, "readmes", "missing: purpose, key types, where to look first, what must never happen")
        elif (lines := tree.text(name).count("\n")) > README_LINES_MAX:
            yield Finding(name, lines, "readmes", f"{lines} lines, the limit is {README_LINES_MAX}")


def pragma_once(tree):
    for name in tree.cpp_files():
        if name.endswith(".h") and not re.search(r"^#pragma once$", tree.text(name), re.M):
            yield Finding(name, 1, "pragma_once", "no #pragma once")


def headers_alone(tree):
    """Each header compiles by itself, with the flags of its room. Unchanged headers cost nothing (build/tidy). Those of
    neon/ are for another processor: the campaign of that name compiles them."""
    built = ("apps/", *(f"src/{room}/" for room in tree.rooms()))
    headers = [name for name in tree.cpp_files("src", "apps") if name.endswith(".h") and name.startswith(built)
               and "/kernels/neon/" not in name]
    if not headers:
        return
    if tree.build is None or not (tree.build / "compile_commands.json").is_file():
        yield Finding("CMakeLists.txt", 1, "headers_alone", "no compile_commands.json: configure first, then --build DIR")
        return
    commands = [(Path(entry["file"]), entry) for entry in json.loads((tree.build / "compile_commands.json").read_text())]
    cache = tree.root / "build" / "tidy"
    cache.mkdir(parents=True, exist_ok=True)

    def compile_one(name):
        command = alone_command(tree, commands, name)
        stamp = cache / header_key(tree, name, command)
        if stamp.is_file():
            return None
        done = subprocess.run(command, capture_output=True, text=True, cwd=tree.build, check=False)
        if done.returncode == 0:
            stamp.touch()
            return None
        first = next((line for line in done.stderr.split("\n") if "error:" in line), done.stderr[:200])
        return Finding(name, 1, "headers_alone", first.replace(str(tree.root) + "/", ""))

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        yield from filter(None, pool.map(compile_one, headers))


def alone_command(tree, commands, name):
    """The compile command of the nearest source: same stem, same folder, same room, any."""
    header = tree.root / name
    room = tree.root / "/".join(name.split("/")[:2])

    def distance(item):
        source = item[0]
        return (source.stem != header.stem or source.parent != header.parent, source.parent != header.parent,
                not source.is_relative_to(room), str(source))

    arguments = shlex.split(min(commands, key=distance)[1]["command"])
    flags, skip = [], False
    for argument in arguments[1:]:
        if skip or argument in ("-c", "-o", "-MD", "-MT", "-MF"):
            skip = argument in ("-o", "-MT", "-MF") and not skip
        elif argument.startswith("-"):
            flags.append(argument)
        elif flags and flags[-1] in ("-isystem", "-I", "-include", "-D"):
            flags.append(argument)
    return ["clang++-19", "-fsyntax-only", *flags, "-x", "c++-header", str(header)]


def header_key(tree, name, command):
    """Hash of the header, of all of ours that it includes, and of the flags."""
    seen, todo, digest = set(), [name], hashlib.sha256(repr(command).encode())
    while todo:
        current = todo.pop()
        if current in seen or not (tree.root / current).is_file():
            continue
        seen.add(current)
        todo += ["src/" + path for _, path, quoted in cpp.includes(tree.text(current)) if quoted]
    for current in sorted(seen):
        digest.update(tree.text(current).encode())
    return digest.hexdigest()[:32]


# ---- the repository ------------------------------------------------------------------------------------------------

def paths_and_hosts(tree):
    """No path of somebody's machine and no package registry's host: clients find those by their own configuration."""
    for name in tree.files:
        if (tree.root / name).stat().st_size > TRACKED_BYTES_MAX:
            continue
        checked = [(HOME_PATH, "a path of one machine")]
        if Path(name).name != "Cargo.lock":  # cargo writes its source there
            checked.append((REGISTRY_HOST, "a package registry's host"))
        for number, line in enumerate(tree.text(name).split("\n"), 1):
            for pattern, what in checked:
                match = pattern.search(line)
                if match:
                    yield Finding(name, number, "paths_and_hosts", f"{what}: {match.group()}")


def file_bytes(tree):
    for name in tree.files:
        size = (tree.root / name).stat().st_size
        if size > TRACKED_BYTES_MAX:
            yield Finding(name, 1, "file_bytes", f"{size} bytes, the limit is {TRACKED_BYTES_MAX}: fetch or generate it")


def shell_scripts(tree):
    for name in tree.files:
        if (tree.root / name).stat().st_size > TRACKED_BYTES_MAX or Path(name).suffix in (".md", ".cc", ".h"):
            continue
        is_shell = name.endswith(".sh") or re.match(r"#!.*\b(ba)?sh\b", tree.text(name)[:80])
        if not is_shell:
            continue
        done = subprocess.run(["bash", "-n", tree.root / name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            yield Finding(name, 1, "shell_scripts", done.stderr.strip().split("\n")[0])
        if name in ("dev", ".ci/run") and not os.access(tree.root / name, os.X_OK):
            yield Finding(name, 1, "shell_scripts", "not executable")


# ---- limits (law 3) ------------------------------------------------------------------------------------------------

def limits(tree):
    """docs/limits.md tells the truth: each limit has its value and its tests, and no maximum of the code is missing."""
    document = limit_table.DOCUMENT
    if not (tree.root / document).is_file():
        yield Finding(document, 1, "limits", "missing: the table of limits")
        return
    table, internal = limit_table.rows(tree.text(document))
    for row in table:
        for problem in limit_problems(tree, row):
            yield Finding(document, row.line, "limits", problem)
    for row in internal:
        if len(row.cells) != limit_table.INTERNAL_COLUMNS or not row.cells[-1]:
            yield Finding(document, row.line, "limits", f"{row.cells[0]}: not name, file and reason")
        elif not limit_table.found_in(source_text(tree, row.file()), row.name()):
            yield Finding(document, row.line, "limits", f"{row.name()} is not in {row.file()}")
    named = {(row.name(), row.file()) for row in table + internal if len(row.cells) > 1}
    for name in tree.cpp_files("src", "apps"):
        if re.search(r"_(test|fuzz|bench)\.cc$|^src/kernels/\w+/", name):  # a kernel's tiles meet no input
            continue
        for line, maximum in limit_table.maxima(tree.text(name)):
            if (maximum, name) not in named:
                yield Finding(name, line, "limits", f"{maximum} stands neither in the table nor in the list of {document}")


def limit_problems(tree, row):
    if len(row.cells) != limit_table.COLUMNS or not all(row.cells):
        yield f"{row.cells[0]}: not {limit_table.COLUMNS} filled cells"
        return
    found, stated = limit_table.found_in(source_text(tree, row.file()), row.name()), limit_table.stated(row.cells[2])
    if not found:
        yield f"{row.name()} is not in {row.file()}"
    elif found != stated:
        yield f"{row.name()} is {found} in {row.file()}, not {stated}"
    tests = limit_table.tests_of(row.cells[-1])
    if not tests:
        yield f"{row.name()} has no test of its error"
    for file, test in tests:
        if not limit_table.has_test(source_text(tree, file), file, test):
            yield f"{row.name()}: {file or 'no file'} has no test {test}"


def source_text(tree, name):
    return tree.text(name) if name and (tree.root / name).is_file() else ""


# ---- the build -----------------------------------------------------------------------------------------------------

def isa_objects(tree):
    """Objects compiled for one instruction set hold no symbol that the linker could merge with another's copy."""
    if tree.build is None:
        return
    cache = tree.build / "CMakeCache.txt"
    if cache.is_file() and re.search(r"^HEADRACE_(SANITIZE:STRING=.+|FUZZ:BOOL=ON|COVERAGE:BOOL=ON)$", cache.read_text(), re.M):
        return  # instrumentation adds weak symbols of its own
    for path in sorted((tree.build / "src").glob("kernels/**/*.o")):
        if re.search(r"avx2|avxvnni|avx512|neon", str(path.relative_to(tree.build))):
            for symbol in mergeable_symbols(path):
                yield Finding(str(path.relative_to(tree.build)), 1, "isa_objects",
                              f"{symbol}: only intrinsics and plain structs here, all in an unnamed namespace or static")


def mergeable_symbols(path):
    listed = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return [f"nm cannot read it: {listed.stderr.strip()}"]
    return [line.strip().split(" ", 1)[-1] for line in listed.stdout.split("\n")
            if re.match(r"^[0-9a-f ]*\s[WVu] ", line)]


RULES = [floors, links, sizes, function_sizes, banned_words, leftovers, readmes, pragma_once, headers_alone,
         paths_and_hosts, file_bytes, shell_scripts, limits, isa_objects]

"""Just enough C++ reading for the house rules: blanked text, function extents, identifiers. No dependencies."""

import re
from dataclasses import dataclass

CONTROL = {"if", "for", "while", "switch", "catch", "else", "do", "try", "return"}
TRAILERS = {"const", "noexcept", "override", "final", "mutable", "volatile", "try"}

TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw>(?:u8|u|U|L)?R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>(?<![0-9A-Fa-f_'])'(?:\\.|[^'\\\n])+')""",
    re.S | re.X)


def blank(text):
    """The code with comments, strings and character literals emptied; every line keeps its number."""
    def empty(match):
        newlines = "\n" * match.group(0).count("\n")
        return newlines if match.group("line") or match.group("block") else '""' + newlines
    return TOKEN.sub(empty, text)


def drop_preprocessor(code):
    """Blanks directives (with their continuation lines) and every branch but the first of a conditional."""
    out, stack, continued = [], [], False
    for line in code.split("\n"):
        stripped = line.lstrip()
        if continued or stripped.startswith("#"):
            if not continued:
                word = re.match(r"#\s*(\w*)", stripped).group(1)
                if word in ("if", "ifdef", "ifndef"):
                    stack.append(True)
                elif word in ("else", "elif", "elifdef", "elifndef") and stack:
                    stack[-1] = False
                elif word == "endif" and stack:
                    stack.pop()
            continued = line.rstrip().endswith("\\")
            out.append("")
        else:
            out.append(line if all(stack) else "")
    return "\n".join(out)


@dataclass
class Function:
    name: str
    line: int   # of the signature
    lines: int  # of the body, both braces included


def functions(code):
    """Outermost function bodies of blanked code without directives. A lambda counts into its function."""
    found, head_start, position, parens = [], 0, 0, 0
    while position < len(code):
        char = code[position]
        if char == "(":
            parens += 1
        elif char == ")":
            parens = max(0, parens - 1)
        elif parens == 0 and char in ";}":
            head_start = position + 1
        elif char == "{":
            end = closing_brace(code, position)
            kind = "skip" if parens else kind_of_block(code[head_start:position])
            if kind == "scope":
                head_start = position + 1
            elif kind == "function":
                start = head_start + len(code[head_start:]) - len(code[head_start:].lstrip())
                found.append(Function(name_of(code[head_start:position]), 1 + code.count("\n", 0, start),
                                      1 + code.count("\n", position, end)))
                head_start, position = end + 1, end
            else:
                position = end
        position += 1
    return found


def closing_brace(code, opening):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def strip_nested(text, opening, closing):
    out, depth = [], 0
    for char in text:
        if char == opening:
            depth += 1
        elif char == closing and depth:
            depth -= 1
        elif depth == 0:
            out.append(char)
    return "".join(out)


# What may stand with parentheses between `class` and the class's name.
ATTRIBUTES = re.compile(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)|alignas\s*\([^()]*\)|\b[A-Z][A-Z0-9_]+\s*\([^()]*\)(?=\s*\w)", re.S)


def kind_of_block(head):
    """What a brace at namespace or class level opens: a scope to look into, a function, or something to skip."""
    head = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", head).strip()
    plain = strip_nested(ATTRIBUTES.sub(" ", head), "<", ">")
    words = re.findall(r"\w+", strip_nested(plain, "(", ")"))
    if "enum" in words or not words:
        return "skip"
    if "namespace" in words or (words[0] == "extern" and "(" not in plain):
        return "scope"
    if {"class", "struct", "union"} & set(words) and "(" not in plain:
        return "scope"
    if "(" not in head or head.endswith("=") or words[0] in CONTROL:
        return "skip"
    last_word = re.search(r"(\w+)$", head)
    if last_word and last_word.group(1) not in TRAILERS and re.search(r"\)[^()?]*(?<!:):(?!:)", head):
        return "skip"  # a member initialised with braces: the body is still to come
    return "function"


def name_of(head):
    head = head[len(head) - len(head.lstrip()):]
    match = re.search(r"(operator\s*\S+?|~?[A-Za-z_][\w:~]*)\s*\(([^()]*)", head)
    if not match:
        return "?"
    if match.group(1) in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST"):
        return ".".join(part.strip() for part in match.group(2).split(","))
    return match.group(1)


def identifiers(code):
    """(line number, identifier) of blanked code."""
    for number, line in enumerate(code.split("\n"), 1):
        for match in re.finditer(r"[A-Za-z_]\w*", line):
            yield number, match.group(), line[:match.start()]


def words_of(identifier):
    """snake_case and CamelCase taken apart, lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return [part.lower() for part in parts]


def includes(text):
    """(line number, quoted path, is_quoted) of each include."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(2), match.group(1) == '"'

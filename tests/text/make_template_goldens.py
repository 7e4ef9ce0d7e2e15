"""Writes goldens/templates.json and goldens/snippets.json: what Python's Jinja2, set up as transformers does, makes of
templates/*.jinja with cases.json and of snippets.json. Needs jinja2.

    python make_template_goldens.py
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1753142401  # 2025-07-22 00:00:01 UTC
SNIPPET_CONTEXT = {
    "n": 42, "f": 1.5, "t": True, "none": None, "list": [3, 1, 2],
    "text": "tab\t nl\n \"q\" \\ </s> & 'x' é 你 \U0001f642 \x01 \x7f \u2028",
    "floats": [0.1, 1.0, 1e-5, 1e-4, 123456789012345680.0, 1e16, 1e15, -0.0, 2.5e-300, 1e22, 100000.0],
    "people": [{"name": "Ada", "age": 36}, {"name": "Alan", "age": 41, "nick": "T"}, {"name": "Grace", "age": 30}]}


class Generation(jinja2.ext.Extension):
    """transformers' {% generation %}: marks the assistant's text, changes nothing."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inner"), [], [], body).set_lineno(line)

    def _inner(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(source, context):
    try:
        return {"text": environment().from_string(source).render(**context)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"raised": str(error)} if raised else {"error": str(error)}
    except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        return {"error": str(error)}


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, indent=1)
    (HERE / "goldens" / name).write_text(text + "\n", encoding="utf-8")


def main():
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    goldens = {}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        goldens[path.stem] = {
            case["name"]: render(source, {"bos_token": "<s>", "eos_token": "</s>", **case["context"]}) for case in cases}
    write("templates.json", goldens)
    snippets = json.loads((HERE / "snippets.json").read_text(encoding="utf-8"))
    write("snippets.json", {"context": {"x": SNIPPET_CONTEXT},
                            "snippets": [{"source": s, **render(s, {"x": SNIPPET_CONTEXT})} for s in snippets]})


if __name__ == "__main__":
    main()

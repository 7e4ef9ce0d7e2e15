"""Goal: a small model at temperature 1 keeps to what the request says its answer must be: every answer that ends is an instance,
every other one says `length`; streams, candidates, neighbours and speculation change nothing of it.
"""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import served

SEEDS = 6


def is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                           "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"}


def is_tree(node):
    return set(node) == {"v", "next"} and is_int(node["v"]) and (node["next"] is None or is_tree(node["next"]))


def response_format(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}}


# What is asked for, and whether a text is that.
CASES = [
    (response_format(PERSON), lambda t: set(v := json.loads(t)) == {"name", "age"} and len(v["name"]) <= 12 and is_int(v["age"]) and 0 <= v["age"] <= 120),
    (response_format({"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2, "maxItems": 4}),
     lambda t: 2 <= len(v := json.loads(t)) <= 4 and set(v) <= {"red", "green"}),
    (response_format(TREE), lambda t: is_tree(json.loads(t))),
    (response_format({"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"], "additionalProperties": False}),
     lambda t: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", json.loads(t)["day"]))),
    ({"response_format": {"type": "json_object"}}, lambda t: isinstance(json.loads(t), dict)),
    ({"structured_outputs": {"choice": ["positive", "negative", "neither \"nor\""]}}, lambda t: t in ("positive", "negative", "neither \"nor\"")),
    ({"structured_outputs": {"regex": r"[A-Z][a-z]{2,8}: [0-9]{1,3}%"}}, lambda t: bool(re.fullmatch(r"[A-Z][a-z]{2,8}: [0-9]{1,3}%", t))),
    ({"guided_grammar": "start: expr\nexpr: NUMBER ((\"+\" | \"*\") NUMBER)*\nNUMBER: /[0-9]{1,3}/"}, lambda t: bool(re.fullmatch(r"\d{1,3}([+*]\d{1,3})*", t))),
]


def ask(server, constraint, seed, **more):
    body = {"model": served.MODEL_NAME, "messages": [{"role": "user", "content": "Say something about a person you know, in the form that is asked for."}],
            "temperature": 1, "seed": seed, "max_tokens": 120, **constraint, **more}
    status, _, text = server.request("POST", "/v1/chat/completions", body)
    assert status == 200, text
    if not more.get("stream"):
        return [(c["finish_reason"], c["message"]["content"]) for c in json.loads(text)["choices"]]
    reason, content = None, ""
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                content += choice["delta"].get("content") or ""
                reason = choice["finish_reason"] or reason
    return [(reason, content)]


def main():
    server = served.Served(served.test_model(), "--log-level", "warn")
    problems, ends = [], {"stop": 0, "length": 0}

    def one(job):
        number, seed = job
        constraint, is_instance = CASES[number]
        alone = ask(server, constraint, seed)[0]
        answers = [alone, ask(server, constraint, seed, stream=True)[0], *ask(server, constraint, seed, n=2)]
        if answers[1] != alone or answers[2] != alone:
            problems.append(f"one request, several answers: {answers}")
        for reason, text in answers:
            ends[reason] += 1
            try:
                good = reason == "length" or is_instance(text)
            except (ValueError, TypeError, KeyError) as error:
                good = False
                text += f" ({error})"
            if not good:
                problems.append(f"{constraint}: {text!r}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, [(number, seed) for number in range(len(CASES)) for seed in range(SEEDS)]))
    status, _, text = server.request("POST", "/v1/chat/completions", {
        "model": served.MODEL_NAME, "messages": [{"role": "user", "content": "x"}], **response_format({"type": "array", "uniqueItems": True})})
    if status != 400 or "uniqueItems" not in text:
        problems.append(f"a keyword that is not enforced: {status} {text}")
    server.wait_idle(10)
    if server.stop() != 0:
        problems.append("serve ended badly: " + server.final_log[-1000:])
    if ends["stop"] < 2 * ends["length"]:
        problems.append(f"most answers should end: {ends}")
    print(f"{ends['stop']} answers were instances, {ends['length']} were cut by max_tokens")
    print("\n".join(f"FAILED {problem}" for problem in problems[:10]) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Rules and sources in a line or two; the verdicts on them: nothing to do, changed to this, drifted; a kept folder."""

from __future__ import annotations

import ast
import atexit
import json
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import libcst as cst

from patcher import diff, plan, rule
from patcher.pattern import Match, compile_pattern, find
from patcher.syntax import Tree

if TYPE_CHECKING:
    from patcher.facts import Facts
    from patcher.plan import Plan
    from patcher.rule import Rule

FILE = "speculators/x.py"


@lru_cache
def kept_folder(interpreter: Path) -> Path:
    """Where the tiny models of an environment, and their references, are kept while this process runs."""
    folder = tempfile.TemporaryDirectory(prefix=f"speculators-patch-{interpreter.parent.parent.name}-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


class Answers:
    """Facts that answer every question alike, and remember what they were asked."""

    packages = frozenset({"vllm", "speculators", "transformers", "torch"})

    def __init__(self, answer: bool = True) -> None:  # noqa: FBT002
        self.answer = answer
        self.asked: list[str] = []

    def _say(self, *question: str) -> bool:
        self.asked.append(" ".join(question))
        return self.answer

    has_symbol = has_parameter = is_required = default_is = has_shape = _say


YES, NO = cast("Facts", Answers()), cast("Facts", Answers(answer=False))


def toml(value: object) -> str:
    """A value as TOML writes it; ASCII text, lists and inline tables are all that rules have."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def rule_text(**keys: object) -> bytes:
    """A rule file with these keys, and what each rule must have."""
    table = {"title": "A title", "why": "Because", "symptom": "It breaks", "file": FILE, **keys}
    return "\n".join(f"{key} = {toml(value)}" for key, value in table.items()).encode()


def make_rule(rule_id: str = "a-rule", /, **keys: object) -> Rule:
    """A rule loaded from a file of these keys, so that all checks of a real one apply."""
    return rule.parse(rule_text(**keys), rule_id, f"{rule_id}.toml")


def replacing(pattern: str, fix: str, **keys: object) -> Rule:
    """A rule of one replacement; ``names`` and ``imports`` go to the rule, other keys to the edit."""
    return _one_edit({"pattern": pattern, "fix": fix, **keys})


def inserting(text: str, **keys: object) -> Rule:
    """A rule of one insertion, ``before`` or ``after`` its anchor."""
    return _one_edit({"insert": text, **keys})


def _one_edit(keys: dict[str, object]) -> Rule:
    names, imports = keys.pop("names", []), keys.pop("imports", [])
    return make_rule(edit=[keys], names=names, imports=imports)


def importing(**keys: object) -> Rule:
    """A rule that only adds, removes or moves imports."""
    return make_rule(imports=[keys])


def planned(source: bytes | str, rules: Rule | Sequence[Rule], facts: Facts = YES) -> Plan:
    """The plan for one file."""
    data = source.encode() if isinstance(source, str) else source
    return plan.make({FILE: data}, [rules] if isinstance(rules, rule.Rule) else rules, facts)


def check_noop(source: bytes | str, rules: Rule | Sequence[Rule], facts: Facts = YES) -> None:
    """Nothing is to be done, nothing is wrong, and every byte stays."""
    made = planned(source, rules, facts)
    assert [str(found) for found in made.drifts] == []
    assert {outcome.state for outcome in made.outcomes} <= {plan.SATISFIED, plan.NOT_NEEDED, plan.ADVICE}
    assert made.after == made.before


def check_transformed(
    source: bytes | str, expected: bytes | str, rules: Rule | Sequence[Rule], facts: Facts = YES
) -> None:
    """The source becomes the expected text, which stays as it is, and which the diff turns back into the source."""
    source, expected = (text.encode() if isinstance(text, str) else text for text in (source, expected))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(expected)
    assert source != expected, "use check_noop"
    made = planned(source, rules, facts)
    assert [str(found) for found in made.drifts] == []
    assert made.after[FILE] == expected
    check_noop(expected, rules, facts)
    check_reversible(made)


def check_drifted(source: bytes | str, rules: Rule | Sequence[Rule], facts: Facts = YES) -> str:
    """A rule finds the file not as it knows it, and what it says about that; every byte stays."""
    made = planned(source, rules, facts)
    assert made.drifts
    assert made.after == made.before
    return "\n".join(str(found) for found in made.drifts)


def check_reversible(made: Plan) -> None:
    """The plan's diff gives the new bytes forward and the old ones backward."""
    patch = diff.unified(made.before, made.after)
    for name in made.before:
        assert patched(made.before[name], patch, name) == made.after[name]
    back = diff.unified(made.after, made.before)
    for name in made.before:
        assert patched(made.after[name], back, name) == made.before[name]


def patched(data: bytes, patch: bytes, name: str) -> bytes:
    """A file after the hunks that a diff has for it: exact, by line numbers and counts, as ``git apply`` does it."""
    lines, out, at = _lines(data), list[bytes](), 0
    for start, old, new in _hunks(_lines(patch), name):
        assert lines[start : start + len(old)] == old
        out += lines[at:start] + new
        at = start + len(old)
    return b"".join(out + lines[at:])


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _hunks(patch: list[bytes], name: str) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Of each hunk for the file: its first line, counted from 0, its old lines and its new lines."""
    file, at = "", 0
    while at < len(patch):
        if patch[at].startswith(b"+++ b/"):
            file = patch[at][6:].decode().strip()
        header = re.match(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", patch[at])
        at += 1
        if header:
            counts = [int(header[2] or b"1"), int(header[3] or b"1")]
            at, old, new = _hunk(patch, at, counts)
            if file == name:
                yield int(header[1]) - (counts[0] > 0), old, new


def _hunk(patch: list[bytes], at: int, counts: list[int]) -> tuple[int, list[bytes], list[bytes]]:
    old: list[bytes] = []
    new: list[bytes] = []
    while [len(old), len(new)] != counts or patch[at : at + 1] == [diff.NO_NEWLINE]:
        line = patch[at]
        at += 1
        if line == diff.NO_NEWLINE:
            for side, signs in ((old, b"- "), (new, b"+ ")):
                if patch[at - 2][:1] in signs:
                    side[-1] = side[-1][:-1]
            continue
        old += [line[1:]] if line[:1] in b"- " else []
        new += [line[1:]] if line[:1] in b"+ " else []
    return at, old, new


def matches(source: str, pattern: str, names: Sequence[str] = ()) -> list[Match]:
    """Where a pattern matches."""
    return find(Tree(cst.parse_module(source)), compile_pattern(pattern, tuple(names)))


def captured(source: str, pattern: str, names: Sequence[str] = ()) -> dict[str, str]:
    """What each metavariable of the only match stands for, as text."""
    module = cst.parse_module(source)
    (match,) = find(Tree(module), compile_pattern(pattern, tuple(names)))
    return {name: _text(module, value) for name, value in match.captures.items()}


def _text(module: cst.Module, value: cst.CSTNode | tuple[cst.CSTNode, ...]) -> str:
    nodes = value if isinstance(value, tuple) else (value,)
    return "".join(module.code_for_node(node) for node in nodes).strip()

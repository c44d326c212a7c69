"""A rule as data: one TOML file, loaded and checked. The file's name is the rule's id.

Nothing here runs code or reads a target; a rule that does not load is a RuleError that names file and key.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from patcher.errors import RuleError
from patcher.rule_check import problems
from patcher.rule_order import in_order, named, select
from patcher.rule_schema import GENERATOR, PACKAGE, WORKER, Case, Edit, Imports, Probe, Rule, RuleFile, Shape, texts

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

__all__ = [
    "GENERATOR", "PACKAGE", "WORKER", "Case", "Edit", "Imports", "Probe", "Rule", "Shape", "default_folder", "describe",
    "in_order", "load", "load_folder", "named", "parse", "select", "texts",
]  # fmt: skip

MAX_BYTES = 64 * 1024  # a rule is read by people; a larger file is a mistake
MAX_RULES = 500
MAX_DOTS = 200  # in a line: the time that tomllib takes for a dotted key grows with the square of its length


def default_folder() -> Path:
    """Where the rules are: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "rules"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "rules"


def load_folder(folder: Path) -> tuple[Rule, ...]:
    """Every rule of a folder, each after the rules that it names in ``after``.

    Raises:
        RuleError: a file does not load, the folder has no rule, or ``after`` names no rule or goes in a circle.
    """
    paths = sorted(folder.glob("*.toml"))
    if not paths or len(paths) > MAX_RULES:
        what = f"more than {MAX_RULES} rules found" if paths else "no rules found"
        raise RuleError(what, where=str(folder), hint="name a folder that holds .toml rule files")
    return in_order([load(path) for path in paths])


def load(path: Path) -> Rule:
    """Read one rule file; RuleError says which key is wrong."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", path.stem):
        raise RuleError("a rule's file name is its id: lower case words and hyphens", where=str(path))
    if not path.is_file():  # a pipe would be waited for
        raise RuleError("a rule is a file", where=str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise RuleError("a rule file can't be read", where=str(path), found=str(error)) from error
    if len(data) > MAX_BYTES:
        raise RuleError(f"a rule file is larger than {MAX_BYTES} bytes", where=str(path))
    return parse(data, path.stem, str(path))


def parse(data: bytes, rule_id: str, where: str) -> Rule:
    """A rule from the bytes of its file."""
    if max(line.count(b".") for line in data.split(b"\n")) > MAX_DOTS:
        raise RuleError("a rule file does not load", where=where, rule=rule_id, found="a line has too many dots")
    try:
        table = tomllib.loads(data.decode())
        body = msgspec.convert({**table}, RuleFile)
        rule = msgspec.convert({**table, "id": rule_id}, Rule) if "id" not in table else None
    except (ValueError, RecursionError) as error:  # msgspec's and tomllib's errors are ValueErrors
        raise RuleError("a rule file does not load", where=where, rule=rule_id, found=str(error)) from error
    if rule is None or body is None:
        raise RuleError(
            "a rule file does not load", where=where, rule=rule_id, found="key `id`: the file name is the id"
        )
    _validate(rule, where)
    return rule


def _validate(rule: Rule, where: str) -> None:
    problem = next(problems(rule), None)
    if problem:
        raise RuleError("a rule file does not load", where=where, rule=rule.id, found=problem)


def describe(rule: Rule) -> dict[str, Any]:
    """What a listing shows of a rule."""
    return {
        "id": rule.id,
        "title": rule.title,
        "why": rule.why,
        "symptom": rule.symptom,
        "links": list(rule.links),
    }

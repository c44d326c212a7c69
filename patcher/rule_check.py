"""What is wrong with a rule that fits the schema: found when it is loaded, in words that name the key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from patcher.metavariable import ONE, RUN, is_run, names_used, with_placeholders
from patcher.rule_schema import PACKAGE, Edit, Imports, Probe, Rule, texts
from patcher.source import SourceProblem, parse_safely
from patcher.target import PACKAGES

MAX_RUNS = 3  # runs in one sequence: matching costs length ** runs
MAX_NOTS = 3  # conditions within conditions: nobody can read more

_PATH = re.compile(rf"{PACKAGE}(/[A-Za-z_][A-Za-z0-9_]*)+\.py")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_PARAMETER = re.compile(rf"{_DOTTED.pattern}\([A-Za-z_]\w*\)", re.ASCII)
_DEFAULT = re.compile(rf"{_PARAMETER.pattern}\s*=\s*\S.*", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{16}")
_CODE = re.compile(r"[ -~\n]*")


def problems(rule: Rule) -> Iterator[str]:
    """What is wrong with the rule, key by key; nothing for a sound one."""
    if not rule.edit and not rule.imports and rule.advice is None:
        yield "it has no edit, no imports and no advice"
    if rule.advice is not None and (rule.edit or rule.imports):
        yield "key `advice`: it changes nothing, and goes without edits and imports"
    yield from (
        f"key `file`: {name!r}: a rule changes Python files of the package {PACKAGE} only"
        for name in rule.files
        if not _PATH.fullmatch(name)
    )
    yield from _dotted("names", rule.names)
    yield from _probe_problems("when", rule.when)
    for number, part in enumerate(rule.imports, 1):
        yield from (f"imports {number}, {text}" for text in _imports_problems(part))
    for number, edit in enumerate(rule.edit, 1):
        yield from (f"edit {number}, {text}" for text in _edit_problems(edit))


def _dotted(key: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"key `{key}`: {name!r} is no dotted name" for name in names if not _DOTTED.fullmatch(name))


def _imports_problems(part: Imports) -> Iterator[str]:
    yield from _dotted("add", part.add)
    yield from _dotted("remove", part.remove)
    yield from _dotted("move", [*part.move, *part.move.values()])
    yield from (f"key `move`: {name!r} has no module" for name in (*part.move, *part.move.values()) if "." not in name)
    if part.when is not None:
        yield from _probe_problems("when", part.when)


def _probe_problems(key: str, probe: Probe, depth: int = 0) -> Iterator[str]:
    yield from _dotted(f"{key}.symbol", texts(probe.symbol))
    lines = [("parameter", _PARAMETER, "a.b.c(name)", text) for text in texts(probe.parameter)]
    lines += [("required", _PARAMETER, "a.b.c(name)", text) for text in texts(probe.required)]
    lines += [("default", _DEFAULT, "a.b.c(name) = value", text) for text in texts(probe.default)]
    yield from (
        f"key `{key}.{name}`: {text!r} is not of the form {form}"
        for name, accepted, form, text in lines
        if not accepted.fullmatch(text)
    )
    asked = [*texts(probe.symbol), *(line[-1] for line in lines), *(shape.inside for shape in probe.shape)]
    yield from (
        f"key `{key}`: {text!r}: a probe asks of {', '.join(PACKAGES)} only"
        for text in asked
        if text.partition(".")[0] not in PACKAGES
    )
    for shape in probe.shape:
        yield from _dotted(f"{key}.shape.inside", [shape.inside])
        yield from _code_problems(f"{key}.shape.pattern", shape.pattern, is_pattern=True)
    if probe.none is not None:
        if depth == MAX_NOTS:
            yield f"key `{key}`: more than {MAX_NOTS} `not` within one another"
        else:
            yield from _probe_problems(f"{key}.not", probe.none, depth + 1)


def _edit_problems(edit: Edit) -> Iterator[str]:
    yield from _form_problems(edit)
    if edit.inside is not None:
        yield from _dotted("inside", [edit.inside])
    if edit.when is not None:
        yield from _probe_problems("when", edit.when)
    for text in texts(edit.unless):
        yield from _code_problems("unless", text, is_pattern=True)
    for anchor in edit.anchors:
        yield from _code_problems("before" if edit.before else "after", anchor, is_pattern=True)
    if edit.insert is not None:
        yield from _code_problems("insert", edit.insert, given=edit.anchors)
    if edit.pattern is not None:
        yield from _case_problems("", edit.pattern, edit.fix or "", edit.known)
    for number, case in enumerate(edit.case, 1):
        yield from _case_problems(f"case {number}, ", case.pattern, case.fix, case.known)


def _form_problems(edit: Edit) -> Iterator[str]:
    replaces = edit.pattern is not None and edit.fix is not None
    inserts = bool(edit.before) != bool(edit.after) and edit.insert is not None
    if sum((replaces, bool(edit.case), inserts)) != 1:
        yield "it has exactly one of: pattern and fix; case; insert with before or after"
    stray = [k for k in ("pattern", "fix") if getattr(edit, k) is not None and not replaces]
    stray += [k for k in ("before", "after", "insert") if getattr(edit, k) not in {None, ()} and not inserts]
    stray += ["known"] if edit.known and not replaces else []
    if stray:
        yield f"key `{stray[0]}`: without its partner"
    if inserts and edit.count > 1:
        yield "key `count`: an insertion goes to one place"
    fixes = [edit.fix or ""] if replaces else [case.fix for case in edit.case]
    if fixes and not any(fix.strip() for fix in fixes) and not edit.unless:
        yield "key `unless`: a deletion leaves nothing to know it by; say what then stands there"


def _case_problems(prefix: str, pattern: str, fix: str, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield from (prefix + text for text in _code_problems("pattern", pattern, is_pattern=True))
    yield from (prefix + text for text in _code_problems("fix", fix, given=(pattern,)))
    captured = {name.lstrip("$") for name in _captured(pattern)}
    for name, digests in known.items():
        if name not in captured:
            yield f"{prefix}key `known.{name}`: the pattern has no such metavariable"
        if not digests or not all(map(_DIGEST.fullmatch, digests)):
            yield f"{prefix}key `known.{name}`: digests are 16 hexadecimal digits"


def _code_problems(key: str, text: str, *, is_pattern: bool = False, given: Sequence[str] = ()) -> Iterator[str]:
    """What is wrong with a piece of code; a fix or insertion may use what the patterns ``given`` capture."""
    if not _CODE.fullmatch(text):
        yield f"key `{key}`: code in a rule is printable ASCII without tabs, so that it fits a file of any encoding"
        return
    if ONE in text or RUN in text:
        yield f"key `{key}`: {ONE} and {RUN} are names of the tool's own"
        return
    try:
        module = parse_safely(with_placeholders(text))
    except SourceProblem as error:
        yield f"key `{key}`: it is not Python with metavariables ({error}):\n{text.strip()}"
        return
    if is_pattern and all(map(is_run, module.body)):
        yield f"key `{key}`: it matches anything"
    if any(_runs(node) > MAX_RUNS for node in ast.walk(module)):
        yield f"key `{key}`: more than {MAX_RUNS} runs ($$$) in one sequence"
    for pattern in given:
        missing = sorted(set(names_used(module)) - _captured(pattern))
        if missing:
            yield f"key `{key}`: it uses {', '.join(missing)}, which the pattern does not capture"


def _captured(pattern: str) -> set[str]:
    """The named metavariables of a pattern; none for one that is not Python."""
    try:
        used = set(names_used(parse_safely(with_placeholders(pattern))))
    except SourceProblem:
        return set()
    return used - {"$_", "$$$"}


def _runs(node: ast.AST) -> int:
    lists = (value for _, value in ast.iter_fields(node) if isinstance(value, list))
    return max((sum(isinstance(item, ast.AST) and is_run(item) for item in items) for items in lists), default=0)

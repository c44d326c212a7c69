"""A rule as data: one TOML file, loaded and checked. The file's name is the rule's id.

Nothing here runs code or reads a target; a rule that does not load is a RuleError that names file and key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeAlias

import msgspec

from patcher.errors import RuleError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
WORKER = "speculators/data_generation/custom_worker.py"
PACKAGE = "speculators"
MAX_BYTES = 64 * 1024  # a rule is read by people; a larger file is a mistake

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts: TypeAlias = "str | tuple[str, ...]"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern asked of the source of a function, class or module of the installed packages."""

    inside: Text
    pattern: Text


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"none": "not"}):
    """What must hold of the installed packages. Every line must hold; under ``not`` no line may.

    ``symbol`` "a.b.c"; ``parameter`` and ``required`` "a.b.c(name)"; ``default`` "a.b.c(name) = value".
    """

    symbol: Texts = ()
    parameter: Texts = ()
    required: Texts = ()
    default: Texts = ()
    shape: tuple[Shape, ...] = ()
    none: Probe | None = None


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One form of the source and what becomes of it; an empty fix deletes statements."""

    pattern: Text
    fix: str
    known: dict[str, tuple[str, ...]] = {}

    def __hash__(self) -> int:
        return hash((self.pattern, self.fix))


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change: replace (``pattern`` and ``fix``, or several ``case``), or ``insert`` before or after an anchor.

    ``unless`` are the forms that count as done already; left out, the fix itself is one. ``known`` holds, for a
    captured run, the digests of the code that may be replaced.
    """

    file: str | None = None
    inside: str | None = None
    when: Probe | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=50)] = 1
    unless: Texts = ()
    pattern: str | None = None
    fix: str | None = None
    known: dict[str, tuple[str, ...]] = {}
    case: tuple[Case, ...] = ()
    before: Texts = ()
    after: Texts = ()
    insert: str | None = None

    def __hash__(self) -> int:
        return hash((self.file, self.inside, self.pattern, self.fix, self.case, self.before, self.after, self.insert))

    @property
    def anchors(self) -> tuple[str, ...]:
        """The patterns that an insertion stands by; the first that is found counts."""
        return texts(self.before) or texts(self.after)


class Imports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Imports of one file. ``move`` maps old dotted names to new ones."""

    file: str | None = None
    when: Probe | None = None
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    move: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.file, self.add, self.remove, tuple(self.move.items())))


class _RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: Text
    why: Text
    symptom: Text
    file: str = GENERATOR
    links: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    when: Probe = Probe()
    edit: tuple[Edit, ...] = ()
    imports: tuple[Imports, ...] = ()
    advice: str | None = None


class Rule(_RuleFile, frozen=True):
    """A rule with its id."""

    id: str = ""

    def __hash__(self) -> int:
        return hash((self.id, self.edit, self.imports))

    @property
    def parts(self) -> tuple[Edit | Imports, ...]:
        """All that the rule does. Imports come first: an edit may stand by one."""
        return (*self.imports, *self.edit)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the rule may change, relative to site-packages, each once."""
        named = [part.file or self.file for part in self.parts] or [self.file]
        return tuple(dict.fromkeys(named))


def texts(value: Texts) -> tuple[str, ...]:
    """A key that takes one text or several, as several."""
    return (value,) if isinstance(value, str) else value


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
    if not paths:
        raise RuleError("no rules found", where=str(folder), hint="name a folder that holds .toml rule files")
    return in_order([load(path) for path in paths])


def load(path: Path) -> Rule:
    """Read one rule file; RuleError says which key is wrong."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", path.stem):
        raise RuleError("a rule's file name is its id: lower case words and hyphens", where=str(path))
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
    try:
        table = tomllib.loads(data.decode())
        body = msgspec.convert({**table}, _RuleFile)
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
    problem = next(_problems(rule), None)
    if problem:
        raise RuleError("a rule file does not load", where=where, rule=rule.id, found=problem)


def _problems(rule: Rule) -> Iterator[str]:
    if not rule.edit and not rule.imports and rule.advice is None:
        yield "it has no edit, no imports and no advice"
    if rule.advice is not None and (rule.edit or rule.imports):
        yield "advice changes nothing: it goes without edits and imports"
    for name in rule.files:
        yield from _path_problems(name)
    for number, edit in enumerate(rule.edit, 1):
        yield from (f"edit {number}: {text}" for text in _edit_problems(edit))
    for code in _code_texts(rule):
        if not code.isascii():
            yield "code in a rule is ASCII, so that it fits a file of any encoding"


def _path_problems(name: str) -> Iterator[str]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or path.parts[:1] != (PACKAGE,) or path.suffix != ".py":
        yield f"file = {name!r}: a rule changes Python files of the package {PACKAGE} only"


def _edit_problems(edit: Edit) -> Iterator[str]:
    replaces = edit.pattern is not None and edit.fix is not None
    inserts = bool(edit.before) != bool(edit.after) and edit.insert is not None
    if sum((replaces, bool(edit.case), inserts)) != 1:
        yield "it has exactly one of: pattern and fix; case; insert with before or after"
    stray = [k for k in ("pattern", "fix") if getattr(edit, k) is not None and not replaces]
    stray += [k for k in ("before", "after", "insert") if getattr(edit, k) not in {None, ()} and not inserts]
    if stray:
        yield f"{', '.join(stray)} without its partner"


def _code_texts(rule: Rule) -> Iterator[str]:
    for edit in rule.edit:
        yield from (text for text in (edit.pattern, edit.fix, edit.insert) if text)
        yield from (*edit.anchors, *texts(edit.unless))
        for case in edit.case:
            yield from (case.pattern, case.fix)


def in_order(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Sorted by id, each rule after those that it names; RuleError for an unknown name or a circle."""
    known = {rule.id: rule for rule in rules}
    done: dict[str, Rule] = {}

    def visit(rule: Rule, path: tuple[str, ...]) -> None:
        if rule.id in path:
            raise RuleError("rules wait for each other", rule=rule.id, found=" -> ".join((*path, rule.id)))
        for name in (*rule.after, *rule.needs):
            if name not in known:
                raise RuleError(f"{name!r}, which it comes after or needs, names no rule", rule=rule.id)
            visit(known[name], (*path, rule.id))
        done.setdefault(rule.id, rule)

    for rule in sorted(rules, key=lambda r: r.id):
        visit(rule, ())
    return tuple(done.values())


def named(rules: Sequence[Rule], names: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of these ids; RuleError for an id that is none."""
    known = {rule.id: rule for rule in rules}
    for name in names:
        if name not in known:
            raise RuleError(f"no rule is called {name!r}", hint="speculators-patch rules lists them")
    return tuple(known[name] for name in names)


def select(rules: Sequence[Rule], only: Sequence[str], skip: Sequence[str]) -> tuple[Rule, ...]:
    """The rules that ``--only`` and ``--skip`` leave, in order.

    What an ``--only`` rule needs is taken with it; what needs a ``--skip`` rule is left out with it.

    Raises:
        RuleError: an id that is none.
    """
    wanted = {rule.id for rule in named(rules, only)} if only else {rule.id for rule in rules}
    left_out = {rule.id for rule in named(rules, skip)}
    for rule in reversed(rules):  # in order: what a rule needs comes before it
        if rule.id in wanted:
            wanted.update(rule.needs)
    kept: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in wanted and rule.id not in left_out and all(need in kept for need in rule.needs):
            kept[rule.id] = rule
    return tuple(kept.values())


def describe(rule: Rule) -> dict[str, Any]:
    """What a listing shows of a rule."""
    return {
        "id": rule.id,
        "title": rule.title,
        "why": rule.why,
        "symptom": rule.symptom,
        "links": list(rule.links),
    }

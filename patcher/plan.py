"""bytes + rules + facts -> Plan. Pure: no disk, no clock; the same input gives the same plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from patcher import edit, imports
from patcher.drift import Drift
from patcher.errors import RuleError
from patcher.fill import PARENTHESES
from patcher.meaning import digest
from patcher.probe import holds
from patcher.rule import Edit, Imports, Rule
from patcher.source import SourceProblem, check_compiles
from patcher.syntax import Tree, parse

if TYPE_CHECKING:
    from patcher.facts import Facts

APPLIES, SATISFIED, NOT_NEEDED, DRIFTED, ADVICE = "applies", "satisfied", "not-needed", "drifted", "advice"
BOM = b"\xef\xbb\xbf"
Answers = tuple[bool, ...]


@dataclass(frozen=True)
class Outcome:
    """What a rule comes to: one of the five outcomes, the files it changes, and why it drifted."""

    rule: Rule
    state: str
    files: tuple[str, ...] = ()
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True)
class Plan:
    """New bytes for each file that was given, and one outcome for each rule."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    outcomes: tuple[Outcome, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The files whose bytes differ, sorted."""
        return tuple(sorted(name for name in self.before if self.before[name] != self.after[name]))

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """Everything that was not as the rules know it; nothing may be written while there is any."""
        return tuple(found for outcome in self.outcomes for found in outcome.drifts)


def make(files: Mapping[str, bytes], rules: Sequence[Rule], facts: Facts) -> Plan:
    """Plan the rules, in the order given, over the files.

    Args:
        files: path relative to site-packages -> its bytes.
        rules: as ``rule.load_folder`` orders them.
        facts: what the installed packages offer.

    Raises:
        RuleError: a rule is wrong in itself: its pattern does not parse, or planning its result changes it again.
    """
    answers = tuple(_answer(rule, facts) for rule in rules)
    plan = _planned(tuple(sorted(files.items())), tuple(rules), answers)
    if not plan.drifts:
        _check_settled(plan, rules, answers)
    return plan


def _answer(rule: Rule, facts: Facts) -> Answers:
    """Does each condition of a rule hold: its own, then those of its edits and imports."""
    own = holds(rule.when, facts)
    return own, *(own and (part.when is None or holds(part.when, facts)) for part in rule.parts)


def _check_settled(plan: Plan, rules: Sequence[Rule], answers: tuple[Answers, ...]) -> None:
    again = _planned(tuple(sorted(plan.after.items())), tuple(rules), answers)
    for outcome in again.outcomes:
        if outcome.state == APPLIES or outcome.drifts:
            found = "\n".join(map(str, outcome.drifts)) or f"it changes {', '.join(outcome.files)} again"
            raise RuleError("a rule does not know its own result", rule=outcome.rule.id, found=found)


@lru_cache(maxsize=256)
def _planned(files: tuple[tuple[str, bytes], ...], rules: tuple[Rule, ...], answers: tuple[Answers, ...]) -> Plan:
    work = _Work(dict(files))
    outcomes = tuple(work.carry_out(rule, given) for rule, given in zip(rules, answers, strict=True))
    return Plan(dict(files), {name: work.result(name) for name, _ in files}, outcomes)


class _Work:
    """The files while the rules go over them: a rule that drifts leaves no trace."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._bytes = files
        self._trees: dict[str, Tree | Drift] = {name: _parsed(name, data) for name, data in files.items()}

    def result(self, name: str) -> bytes:
        """The file's new bytes, proven: they compile, and read back as the code that the edits built."""
        tree, before = self._trees[name], self._bytes[name]
        if isinstance(tree, Drift) or tree.module is tree.origin:
            return before
        data = (BOM if before.startswith(BOM) else b"") + tree.module.bytes
        read = _parsed(name, data)
        if isinstance(read, Drift):
            raise RuleError("the rules give a file that does not compile", where=name, found=read.what)
        if digest(read.module.body) != digest(tree.module.body):
            raise RuleError(
                "the rules give a file that reads another way than they say",
                where=name,
                hint=PARENTHESES,
            )
        return data

    def carry_out(self, rule: Rule, answers: Answers) -> Outcome:
        own, *parts = answers
        if not own or not (any(parts) or rule.advice):
            return Outcome(rule, NOT_NEEDED)
        if rule.advice:
            return Outcome(rule, ADVICE)
        trees, drifts = dict(self._trees), []
        try:
            for part, wanted in zip(rule.parts, parts, strict=True):
                found = self._carry_out_part(rule, part, trees) if wanted else None
                drifts += [found] if found else []
        except cst.CSTValidationError as error:
            raise RuleError("the fix does not make Python", rule=rule.id, found=str(error)) from error
        except RuleError as error:
            error.rule = error.rule or rule.id
            raise
        if drifts:
            return Outcome(rule, DRIFTED, drifts=tuple(drifts))
        for part, wanted in zip(rule.parts, parts, strict=True):
            if wanted and isinstance(part, Imports):
                _drop_unused(rule, part, trees)
        changed = tuple(name for name in trees if trees[name] is not self._trees[name])
        self._trees = trees
        return Outcome(rule, APPLIES if changed else SATISFIED, changed)

    def _carry_out_part(self, rule: Rule, part: Edit | Imports, trees: dict[str, Tree | Drift]) -> Drift | None:
        name = part.file or rule.file
        tree = trees.get(name, Drift(rule.id, name, "the file is not there", expected="", candidates=()))
        if isinstance(tree, Drift):
            return tree.of(rule.id)
        if isinstance(part, Imports):
            done = _imported(rule, name, tree, part)
        else:
            done = edit.carry_out(rule, name, tree, part)
        if isinstance(done, Drift):
            return done.nearest(self._bytes[name])
        trees[name] = done
        return None


@lru_cache(maxsize=32)
def _parsed(name: str, data: bytes) -> Tree | Drift:
    """The file as a tree, or why no rule may touch it: LibCST must give back every byte that it was given.

    Kept, because what the rules give is read twice: as proof, and to see that planning it changes nothing.
    """
    body = data.removeprefix(BOM)
    try:
        module = parse(body)
        check_compiles(data, name)
        same = module.bytes == body
    except (SourceProblem, ValueError, RecursionError) as error:
        return Drift("", name, f"the file does not parse ({error})", expected="")
    if not same:
        return Drift("", name, "LibCST does not give the file back byte for byte", expected="")
    return Tree(module)


def _imported(rule: Rule, name: str, tree: Tree, part: Imports) -> Tree | Drift:
    for old, new in part.move.items():
        tree = imports.move(tree, old, new)
        if imports.is_reached(tree, old):
            return Drift(rule.id, name, f"{old} is used by its module's name", expected=_import_of(old))
    for dotted in part.add:
        if imports.is_taken(tree, dotted):
            return Drift(rule.id, name, "the name is something else here", expected=_import_of(dotted))
        tree = imports.add(tree, dotted)
    return tree


def _import_of(dotted: str) -> str:
    module, _, name = dotted.rpartition(".")
    return f"from {module} import {name}" if module else f"import {name}"


def _drop_unused(rule: Rule, part: Imports, trees: dict[str, Tree | Drift]) -> None:
    """Imports go last, once no edit leaves a use of them."""
    name = part.file or rule.file
    tree = trees[name]
    for dotted in part.remove:
        tree = tree if isinstance(tree, Drift) else imports.remove(tree, dotted)
    trees[name] = tree

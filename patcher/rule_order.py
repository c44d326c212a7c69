"""Which rules run, and in what order."""

from __future__ import annotations

from collections.abc import Sequence

from patcher.errors import RuleError
from patcher.rule_schema import Rule


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
            if name not in done:
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

"""One edit on one tree: is it to be made, does it stand already, or is the file not what the rule knows?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import libcst as cst

from patcher import drift, rewrite
from patcher.drift import Drift
from patcher.meaning import digest
from patcher.pattern import Match, compile_pattern, find
from patcher.rule import Case, Edit, Rule, texts
from patcher.syntax import Tree, find_scope, find_scopes, walk
from patcher.template import parse_template


def carry_out(rule: Rule, name: str, tree: Tree, edit: Edit) -> Tree | Drift:
    """The tree with the edit made at each of its places; the very same tree where it stands already."""
    cases, names = _cases(edit), _names(rule)
    scopes = [tree.module] if edit.inside is None else find_scopes(tree.module, edit.inside)
    if not scopes:
        return Drift(rule.id, name, f"{edit.inside} is not there", expected=cases[0].pattern, inside=edit.inside)
    if len(scopes) > 1:  # Python runs the last one, and nobody knows which one was meant
        what = f"{edit.inside} is there {len(scopes)} times"
        there = [Match((scope,), {}) for scope in scopes]
        return drift.at(rule.id, name, what, [cases[0].pattern], edit.inside, tree, there)
    done, sites = _survey(tree, edit, cases, scopes[0], names)
    if len(done) + len(sites) != edit.count:
        what = f"expected {edit.count} place(s), found {len(sites)} to change and {len(done)} done"
        places = tuple(m for _, m in sites) + tuple(done)
        return drift.at(rule.id, name, what, [c.pattern for c in cases], edit.inside, tree, places)
    for case, match in sites:
        unknown = _unknown(case, match)
        if unknown:
            return drift.at(rule.id, name, unknown, [case.pattern], edit.inside, tree, (match,))
    return _change(tree, edit, cases, names) if sites else tree


def _change(tree: Tree, edit: Edit, cases: Sequence[Case], names: tuple[str, ...]) -> Tree:
    """Make the edit at one place after the other; each change makes a new tree, so each place is looked up afresh."""
    for _ in range(edit.count):
        scope = tree.module if edit.inside is None else find_scope(tree.module, edit.inside)
        _, sites = _survey(tree, edit, cases, scope or tree.module, names)
        if not sites:
            break
        tree = _apply(tree, edit, sites[0][0], sites[0][1], names)
    return tree


def _apply(tree: Tree, edit: Edit, case: Case, match: Match, names: tuple[str, ...]) -> Tree:
    pattern = compile_pattern(case.pattern, names)
    if edit.insert is not None:
        return rewrite.insert(tree, match, pattern, edit.insert, before=bool(edit.before))
    return rewrite.replace(tree, match, pattern, case.fix)


def _cases(edit: Edit) -> tuple[Case, ...]:
    if edit.case:
        return edit.case
    if edit.insert is not None:
        return tuple(Case(anchor, "") for anchor in edit.anchors)
    return (Case(edit.pattern or "", edit.fix or "", edit.known),)


def _names(rule: Rule) -> tuple[str, ...]:
    added = (dotted for part in rule.imports for dotted in part.add if "." in dotted)
    return tuple(dict.fromkeys((*rule.names, *added)))


def _survey(
    tree: Tree, edit: Edit, cases: Sequence[Case], scope: cst.CSTNode, names: tuple[str, ...]
) -> tuple[list[Match], list[tuple[Case, Match]]]:
    """Where the edit stands already, and where it is still to be made."""
    found = _first_case_only((c, m) for c in cases for m in find(tree, compile_pattern(c.pattern, names), scope))
    results = texts(edit.unless) or _own_results(edit, cases)
    standing = _unique([m for text in results for m in find(tree, compile_pattern(text, names), scope)])
    if edit.insert is not None:
        # The anchor stays after an insertion: what was inserted says whether it is done.
        return (standing, []) if standing else ([], [(c, m) for c, m in found if c is found[0][0]])
    if edit.unless or any(_fits_own_fix(case, names) for case in cases):
        return standing, [(c, m) for c, m in found if not _overlap(m, standing)]
    sites = [m for _, m in found]
    return [m for m in standing if not _overlap(m, sites)], found


def _first_case_only(found: Iterable[tuple[Case, Match]]) -> list[tuple[Case, Match]]:
    """Where two cases match the same code, the earlier one counts: cases go from the special to the general."""
    kept: list[tuple[Case, Match]] = []
    for case, match in found:
        if not _overlap(match, [m for c, m in kept if c is not case]):
            kept.append((case, match))
    return kept


def _overlap(match: Match, others: Sequence[Match]) -> bool:
    """Does a match share a node with another, or lie within one?"""
    own = {id(node) for node in match.nodes}
    return any(id(node) in own for other in others for outer in other.nodes for node in walk(outer))


def _unique(matches: Sequence[Match]) -> list[Match]:
    return list({id(m.nodes[0]): m for m in matches}.values())


def _own_results(edit: Edit, cases: Sequence[Case]) -> tuple[str, ...]:
    if edit.insert is not None:
        return (edit.insert,)
    return tuple(dict.fromkeys(case.fix for case in cases if case.fix.strip()))


@lru_cache(maxsize=512)
def _fits_own_fix(case: Case, names: tuple[str, ...]) -> bool:
    """Does the pattern match its own fix, as one that adds an argument does? Then the fix is looked for first."""
    if not case.fix.strip():
        return False
    fixed = Tree(parse_template(case.fix))
    return bool(find(fixed, compile_pattern(case.pattern, names)))


def _unknown(case: Case, match: Match) -> str | None:
    """Why a captured run of code is not what the rule knows; None where it is, or where the rule does not say."""
    for name, digests in case.known.items():
        value = match.captures.get(name, ())
        actual = digest(value if isinstance(value, tuple) else (value,))
        if actual not in digests:
            return f"${name} is not the code that the rule knows (its digest is {actual})"
    return None

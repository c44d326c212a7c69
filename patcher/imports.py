"""Adds, removes and moves imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from patcher.comma import Row, followed_by, gap_after, has_comma
from patcher.import_lines import add_line, drop_line
from patcher.meaning import string_value
from patcher.syntax import Tree, alias_name, dotted_text, imported_names, qualified, same_name, walk
from patcher.template import parse_template

LINE = 88  # what speculators' own lines keep to


@dataclass(frozen=True)
class Imported:
    """One ``from module import name`` of a file."""

    statement: cst.ImportFrom
    alias: cst.ImportAlias
    dotted: str
    local: str


def add(tree: Tree, dotted: str) -> Tree:
    """Import a name unless the file has it, under any name, from this package.

    ``a.b.c`` becomes ``from a.b import c``; a name without a dot becomes ``import name``.
    """
    if is_imported(tree, dotted):
        return tree
    module, _, name = dotted.rpartition(".")
    if not module:
        return add_line(tree, f"import {name}", name)
    for statement in _top_level(tree.module):
        if not statement.relative and statement.module is not None and dotted_text(statement.module) == module:
            return _with_name(tree, statement, module, name)
    return add_line(tree, f"from {module} import {name}", module)


def is_imported(tree: Tree, dotted: str) -> bool:
    """Does the module bind the name by an import of this package, whichever module of it: vLLM moves names about."""
    bound = imported_names(tree, always=True)
    if "." not in dotted:
        return bound.get(dotted) == dotted
    return any(same_name(other, dotted) for other in bound.values())


def is_taken(tree: Tree, dotted: str) -> bool:
    """Does the file mean something else by the name, so that an import of it would break what uses it?"""
    held = tree.names.get(dotted.rpartition(".")[2])
    return held is not None and held != dotted and not same_name(held, dotted) and not is_imported(tree, dotted)


def is_reached(tree: Tree, dotted: str) -> bool:
    """Does the file use the name by way of its module, as in ``module.name``?"""
    return any(isinstance(node, cst.Attribute) and qualified(node, tree.names) == dotted for node in tree.nodes)


def remove(tree: Tree, dotted: str) -> Tree:
    """Drop an import that nothing in the file uses any more; one that is in use stays."""
    for found in _imported(tree):
        if found.dotted == dotted and not _is_used(tree, found.local):
            return _drop(tree, found)
    for statement in tree.nodes:
        if isinstance(statement, cst.Import) and len(statement.names) == 1:
            only = statement.names[0]
            plain = dotted_text(only.name) == dotted and alias_name(only) is None
            if plain and not _is_used(tree, dotted.partition(".")[0]):
                return drop_line(tree, statement)
    return tree


def move(tree: Tree, old: str, new: str) -> Tree:
    """Import a name from another module, wherever it is imported; its local name stays, so no other line changes."""
    found = next((f for f in _imported(tree) if f.dotted == old), None)
    if found is None or old == new:
        return tree
    module, _, name = new.rpartition(".")
    dropped = _drop(tree, found)
    if imported_names(dropped, always=True).get(found.local) == new:
        return move(dropped, old, new)
    if found.local == name:
        return move(_add_anyway(dropped, new), old, new)
    return move(add_line(dropped, f"from {module} import {name} as {found.local}", module), old, new)


def _add_anyway(tree: Tree, dotted: str) -> Tree:
    """Import a name although the package may have it under another local name."""
    module, _, name = dotted.rpartition(".")
    if is_imported(tree, dotted):
        return add_line(tree, f"from {module} import {name}", module)
    return add(tree, dotted)


def _imported(tree: Tree) -> Iterator[Imported]:
    for statement in tree.nodes:
        if not isinstance(statement, cst.ImportFrom) or statement.module is None or statement.relative:
            continue
        for alias in _aliases(statement):
            name = dotted_text(alias.name)
            dotted = f"{dotted_text(statement.module)}.{name}"
            yield Imported(statement, alias, dotted, alias_name(alias) or name)


def _top_level(module: cst.Module) -> Iterator[cst.ImportFrom]:
    for line in module.body:
        if isinstance(line, cst.SimpleStatementLine):
            yield from (s for s in line.body if isinstance(s, cst.ImportFrom) and _aliases(s))


def _aliases(statement: cst.ImportFrom) -> Sequence[cst.ImportAlias]:
    return () if isinstance(statement.names, cst.ImportStar) else statement.names


def _is_used(tree: Tree, local: str) -> bool:
    """Is the name read anywhere, or exported? A string that is exactly the name counts."""
    statements = tree.within(tree.module, (cst.Import, cst.ImportFrom))
    importing = {id(node) for statement in statements for node in walk(statement)}
    for node in tree.within(tree.module, (cst.Name, cst.SimpleString)):
        if isinstance(node, cst.Name) and node.value == local and id(node) not in importing:
            if tree.place(node).field not in {"attr", "keyword"}:
                return True
        elif string_value(node) == local:
            return True
    return False


def _with_name(tree: Tree, statement: cst.ImportFrom, module: str, name: str) -> Tree:
    """Sort the name in among the others, laid out as they are; a line that gets too long becomes one line a name."""
    names = list(_aliases(statement))
    at = sum(dotted_text(alias.name) < name for alias in names)
    order = [*range(at), None, *range(at, len(names))]
    names.insert(at, cst.ImportAlias(cst.Name(name)))
    head, spelled = f"from {module} import", [_spelled(alias) for alias in names]
    if statement.lpar is None and len(f"{head} {', '.join(spelled)}") > LINE:
        lines = "".join(f"    {text},\n" for text in spelled)
        return _put(tree, statement, next(_top_level(parse_template(f"{head} (\n{lines})\n"))))
    return _rearranged(tree, statement, names, order)


def _spelled(alias: cst.ImportAlias) -> str:
    local = alias_name(alias)
    return dotted_text(alias.name) + (f" as {local}" if local else "")


def _drop(tree: Tree, found: Imported) -> Tree:
    names = _aliases(found.statement)
    if len(names) == 1:
        return drop_line(tree, found.statement)
    kept = [i for i, alias in enumerate(names) if alias is not found.alias]
    return _rearranged(tree, found.statement, [names[i] for i in kept], kept)


def _rearranged(
    tree: Tree, statement: cst.ImportFrom, names: Sequence[cst.ImportAlias], order: Sequence[int | None]
) -> Tree:
    """The statement with these names; ``order`` tells the old index of each that is not new."""
    old, lpar, rpar = _aliases(statement), statement.lpar, statement.rpar
    before = lpar.whitespace_after if lpar else cst.SimpleWhitespace("")
    row = Row(before, tuple(gap_after(alias, rpar.whitespace_before if rpar else None) for alias in old))
    laid, trailing = row.rearranged(order), has_comma(old[-1])
    changed = [followed_by(alias, laid.gaps[k], comma=trailing or k < len(names) - 1) for k, alias in enumerate(names)]
    brackets = {}
    if lpar and rpar:
        closing = rpar.whitespace_before if trailing else laid.gaps[-1]
        brackets = {
            "lpar": lpar.with_changes(whitespace_after=laid.before),
            "rpar": rpar.with_changes(whitespace_before=closing),
        }
    return _put(tree, statement, statement.with_changes(names=changed, **brackets))


def _put(tree: Tree, old: cst.ImportFrom, new: cst.ImportFrom) -> Tree:
    place = tree.place(old)
    held = list(getattr(place.parent, place.field))
    held[place.index or 0] = new.with_changes(semicolon=old.semicolon)
    return tree.rebuilt(place.parent, place.field, held)

"""Adds, removes and moves imports: sorted into place, so that the order of the rules does not show."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from patcher.syntax import Tree, alias_name, dotted_text, imported_names
from patcher.template import parse_template

Statement: TypeAlias = "cst.SimpleStatementLine | cst.BaseCompoundStatement"
Key: TypeAlias = "tuple[int, int, str]"
NO_IMPORT: Key = (0, 0, "")


@dataclass(frozen=True)
class Imported:
    """One ``from module import name`` of a file."""

    statement: cst.ImportFrom
    alias: cst.ImportAlias
    dotted: str
    local: str


def add(tree: Tree, dotted: str) -> Tree:
    """Import a name unless the file has it, under this name, from this package.

    ``a.b.c`` becomes ``from a.b import c``; a name without a dot becomes ``import name``.
    """
    if is_imported(tree, dotted):
        return tree
    module, _, name = dotted.rpartition(".")
    if not module:
        return _add_statement(tree, f"import {name}", name)
    for statement in _from_imports(tree):
        plain = not isinstance(statement.names, cst.ImportStar) and not statement.relative
        if plain and statement.module is not None and dotted_text(statement.module) == module:
            return _add_alias(tree, statement, name)
    return _add_statement(tree, f"from {module} import {name}", module)


def is_imported(tree: Tree, dotted: str) -> bool:
    """Is the name bound by an import of this package, whichever module of it: vLLM moves names about."""
    last, package = dotted.rpartition(".")[2], dotted.partition(".")[0]
    bound = imported_names(tree)
    if "." not in dotted:
        return bound.get(dotted) == dotted
    return any(v.rpartition(".")[2] == last and v.partition(".")[0] == package for v in bound.values())


def remove(tree: Tree, dotted: str) -> Tree:
    """Drop an import that nothing in the file uses any more; one that is in use stays."""
    for found in _imported(tree):
        if found.dotted == dotted and not _is_used(tree, found.local):
            return _drop(tree, found)
    for statement in tree.nodes:
        if isinstance(statement, cst.Import) and len(statement.names) == 1 and not _is_used(tree, dotted):
            only = statement.names[0]
            if dotted_text(only.name) == dotted and alias_name(only) is None:
                return _drop_statement(tree, statement)
    return tree


def move(tree: Tree, old: str, new: str) -> Tree:
    """Import a name from another module; its local name stays, so no other line changes."""
    for found in _imported(tree):
        if found.dotted != old:
            continue
        if alias_name(found.alias) is None:
            return _add_moved(_drop(tree, found), new)
        module, _, name = new.rpartition(".")
        text = f"from {module} import {name} as {found.local}"
        return _add_statement(_drop(tree, found), text, module)
    return tree


def _add_moved(tree: Tree, new: str) -> Tree:
    return tree if new in imported_names(tree).values() else add(tree, new)


def _imported(tree: Tree) -> Iterator[Imported]:
    for statement in _from_imports(tree):
        if isinstance(statement.names, cst.ImportStar) or statement.module is None or statement.relative:
            continue
        for alias in statement.names:
            name = dotted_text(alias.name)
            dotted = f"{dotted_text(statement.module)}.{name}"
            yield Imported(statement, alias, dotted, alias_name(alias) or name)


def _from_imports(tree: Tree) -> Iterator[cst.ImportFrom]:
    return (node for node in tree.nodes if isinstance(node, cst.ImportFrom))


def _is_used(tree: Tree, local: str) -> bool:
    for node in tree.nodes:
        if isinstance(node, cst.Name) and node.value == local:
            parent = tree.place(node).parent
            member = isinstance(parent, cst.Attribute) and parent.attr is node
            keyword = isinstance(parent, cst.Arg) and parent.keyword is node
            if not (member or keyword or isinstance(parent, cst.ImportAlias)):
                return True
    return False


def _add_alias(tree: Tree, statement: cst.ImportFrom, name: str) -> Tree:
    """Sort the name in among the others; it takes the layout of the one whose place it takes."""
    names = list(statement.names) if not isinstance(statement.names, cst.ImportStar) else []
    at = _sorted_index([dotted_text(alias.name) for alias in names], name)
    fresh = cst.ImportAlias(cst.Name(name))
    if at < len(names):
        fresh = fresh.with_changes(comma=_separator(names))
    else:
        fresh = fresh.with_changes(comma=names[-1].comma)
        names[-1] = names[-1].with_changes(comma=_separator(names, statement.lpar))
    names.insert(at, fresh)
    return tree.rebuilt(statement, "names", names)


def _sorted_index(names: Sequence[str], name: str) -> int:
    return sum(other < name for other in names)


def _separator(names: Sequence[cst.ImportAlias], lpar: cst.LeftParen | None = None) -> cst.Comma:
    for alias in names[:-1]:
        if isinstance(alias.comma, cst.Comma):
            return cst.Comma(whitespace_after=_without_comment(alias.comma.whitespace_after))
    opening = lpar.whitespace_after if lpar is not None else None
    if isinstance(opening, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=_without_comment(opening))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _without_comment(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    return space


def _drop(tree: Tree, found: Imported) -> Tree:
    names = list(found.statement.names) if not isinstance(found.statement.names, cst.ImportStar) else []
    if len(names) == 1:
        return _drop_statement(tree, found.statement)
    at = next(i for i, alias in enumerate(names) if alias is found.alias)
    del names[at]
    if at == len(names):
        names[-1] = names[-1].with_changes(comma=found.alias.comma)
    return tree.rebuilt(found.statement, "names", names)


def _drop_statement(tree: Tree, statement: cst.BaseSmallStatement) -> Tree:
    """Drop the import's line; comments above it stay with what follows."""
    line = tree.place(statement).parent
    place = tree.place(line)
    body = list(getattr(place.parent, place.field))
    at = place.index or 0
    lead = list(getattr(line, "leading_lines", []))
    del body[at]
    if at < len(body) and lead:
        body[at] = body[at].with_changes(leading_lines=[*lead, *body[at].leading_lines])
    return tree.rebuilt(place.parent, place.field, body)


def _add_statement(tree: Tree, text: str, module: str) -> Tree:
    """Sort a new import line in among those of its package, or put it in front of the first import of a later one."""
    lines = [(i, node) for i, node in enumerate(tree.module.body) if _import_key(node) != NO_IMPORT]
    key = _sort_key(text.split()[0], module)
    at = next(
        (i for i, node in lines if _import_key(node) > key),
        lines[-1][0] + 1 if lines else _after_docstring(tree),
    )
    body = list(tree.module.body)
    fresh, following = _spaced(parse_template(text).body[0], key, body, at)
    body[at : at + 1] = [fresh, *following]
    return tree.rebuilt(tree.module, "body", body)


def _spaced(fresh: Statement, key: Key, body: Sequence[Statement], at: int) -> tuple[Statement, list[Statement]]:
    """Blank lines between the blocks of imports, none within one; what stood above the place stays above it."""
    following = list(body[at : at + 1])
    before = _import_key(body[at - 1]) if at else NO_IMPORT
    after = _import_key(following[0]) if following else NO_IMPORT
    lead = list(getattr(following[0], "leading_lines", [])) if after != NO_IMPORT else []
    if not lead and before != NO_IMPORT and before[0] != key[0]:
        lead = [cst.EmptyLine(indent=False)]
    if after != NO_IMPORT:
        gap = [cst.EmptyLine(indent=False)] if after[0] != key[0] else []
        if before[0] == key[0] and gap:  # joins the block above: its own gap stays below it
            return fresh, following
        following = [following[0].with_changes(leading_lines=gap)]
    return fresh.with_changes(leading_lines=lead), following


def _sort_key(keyword: str, module: str) -> Key:
    """Standard library first, then packages; within a block plain imports first, as isort has it."""
    own = module.partition(".")[0]
    block = 1 if module == "__future__" else 2 if own in sys.stdlib_module_names else 4 if own == "speculators" else 3
    return block, 0 if keyword == "import" else 1, module


def _import_key(node: cst.CSTNode) -> Key:
    if isinstance(node, cst.SimpleStatementLine):
        for small in node.body:
            if isinstance(small, cst.Import):
                return _sort_key("import", dotted_text(small.names[0].name))
            if isinstance(small, cst.ImportFrom):
                if small.relative or small.module is None:
                    return 9, 1, ""
                return _sort_key("from", dotted_text(small.module))
    return NO_IMPORT


def _after_docstring(tree: Tree) -> int:
    return 1 if tree.module.get_docstring() is not None else 0

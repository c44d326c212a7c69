"""Where an import line goes: sorted into place, so that the order of the rules does not show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeAlias

import libcst as cst

from patcher.keep import has_comment, lead
from patcher.syntax import Tree, dotted_text
from patcher.template import parse_template

Statement: TypeAlias = "cst.SimpleStatementLine | cst.BaseCompoundStatement"
Key: TypeAlias = "tuple[int, int, str]"
NO_IMPORT: Key = (0, 0, "")


def add_line(tree: Tree, text: str, module: str) -> Tree:
    """Sort a new import line in among those of its package, or put it in front of the first import of a later one."""
    lines = [(i, node) for i, node in enumerate(tree.module.body) if _import_key(node) != NO_IMPORT]
    key = _sort_key(text.split(maxsplit=1)[0], module)
    # After its smaller neighbour of the same block, if it has one: other code may stand before the larger one.
    smaller = [i + 1 for i, node in lines if _import_key(node)[0] == key[0] and _import_key(node) < key]
    larger = [i for i, node in lines if _import_key(node) > key]
    last = lines[-1][0] + 1 if lines else _after_docstring(tree)
    at = smaller[-1] if smaller else larger[0] if larger else last
    body = list(tree.module.body)
    fresh, following = _spaced(parse_template(text).body[0], key, body, at)
    body[at : at + 1] = [fresh, *following]
    return tree.rebuilt(tree.module, "body", body)


def _spaced(fresh: Statement, key: Key, body: Sequence[Statement], at: int) -> tuple[Statement, list[Statement]]:
    """Blank lines between the blocks of imports, none within one; a comment stays with the line that it is above."""
    following = list(body[at : at + 1])
    before = _import_key(body[at - 1]) if at else NO_IMPORT
    after = _import_key(following[0]) if following else NO_IMPORT
    above = lead(following[0]) if after != NO_IMPORT else []
    comments = above[next((i for i, line in enumerate(above) if line.comment), len(above)) :]
    blank = above[: len(above) - len(comments)]
    if not blank and before != NO_IMPORT and before[0] != key[0]:
        blank = [cst.EmptyLine(indent=False)]
    if after != NO_IMPORT:
        gap = [cst.EmptyLine(indent=False)] if after[0] != key[0] else []
        if before[0] == key[0] and gap:  # joins the block above: its own gap stays below it
            return fresh, following
        following = [following[0].with_changes(leading_lines=[*gap, *comments])]
    return fresh.with_changes(leading_lines=blank), following


def drop_line(tree: Tree, statement: cst.BaseSmallStatement) -> Tree:
    """Drop an import; comments above its line stay with what follows, and a block that it leaves empty passes."""
    line = tree.place(statement).parent
    small = [other for other in getattr(line, "body", ()) if other is not statement]
    if small:
        small[-1] = small[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return tree.rebuilt(line, "body", small)
    if not isinstance(line, cst.SimpleStatementLine):
        return tree.rebuilt(line, "body", [cst.Pass()])
    place = tree.place(line)
    body = list(getattr(place.parent, place.field))
    at, above = place.index or 0, lead(line)
    del body[at]
    if not body and place.parent is not tree.module:
        body = [cst.SimpleStatementLine([cst.Pass()], leading_lines=above)]
    elif at < len(body) and above:
        own = lead(body[at])
        body[at] = body[at].with_changes(leading_lines=[*above, *own] if has_comment(above) or not own else own)
    return tree.rebuilt(place.parent, place.field, body)


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

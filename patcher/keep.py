"""What survives when a fix writes statements anew: those that it repeats stay as they are, comments and layout included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import libcst as cst

from patcher.syntax import digest, meaning_fields

Statements = Sequence[cst.CSTNode]
_PARTS = frozenset({"body", "orelse", "finalbody", "handlers", "params"})


def keep(new: Statements, old: Statements) -> list[cst.CSTNode]:
    """The new statements, each that repeats an old one as it was, and blocks with what they repeat."""
    left = list(old)
    taken = [_take(left, node) for node in new]
    return [
        _merged(node, _of_same_head(left, node)) if same is None else _with_own_comments(same, node)
        for node, same in zip(new, taken, strict=True)
    ]


def lead(node: cst.CSTNode) -> list[cst.EmptyLine]:
    """The blank lines and comments above a statement."""
    return list(getattr(node, "leading_lines", []))


def has_comment(lines: Sequence[cst.EmptyLine]) -> bool:
    """Is any of them a comment?"""
    return any(line.comment for line in lines)


def set_apart(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Of the lines above a statement those that are not about it: up to the last blank line."""
    return list(lines[: max((i + 1 for i, line in enumerate(lines) if not line.comment), default=0)])


def _take(left: list[cst.CSTNode], node: cst.CSTNode) -> cst.CSTNode | None:
    meaning = digest([node])
    same = next((other for other in left if other is node or digest([other]) == meaning), None)
    if same is not None:
        left.remove(same)
    return same


def _with_own_comments(same: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode:
    """The old statement; a comment that the fix writes above it takes the place of the old one."""
    if same is node or not has_comment(lead(node)):
        return same
    return same.with_changes(leading_lines=[*set_apart(lead(same)), *lead(node)])


def _of_same_head(left: list[cst.CSTNode], node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.BaseCompoundStatement):
        return None
    head = _head(node)
    return next((other for other in left if type(other) is type(node) and _head(other) == head), None)


def _head(node: cst.CSTNode) -> str:
    """What a block is known by: its condition, its loop variable, its name."""
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node.name.value
    held = (getattr(node, name) for name in meaning_fields(type(node)) if name not in _PARTS)
    return digest([value for value in held if isinstance(value, cst.CSTNode)])


def _merged(new: cst.CSTNode, old: cst.CSTNode | None) -> cst.CSTNode:
    """The new block with all of the old one's layout, and the old one's own nodes where they mean the same."""
    if old is None or type(old) is not type(new):
        return new
    changes: dict[str, object] = {}
    meaning = meaning_fields(type(new))
    for name in (field.name for field in fields(type(new))):
        mine, theirs = getattr(new, name), getattr(old, name)
        if name == "body":
            changes[name] = _merged_block(mine, theirs)
        elif name not in meaning and name != "leading_lines":
            changes[name] = theirs
        elif isinstance(mine, cst.CSTNode) and isinstance(theirs, cst.CSTNode):
            changes[name] = theirs if digest([mine]) == digest([theirs]) else _merged(mine, theirs)
    if not has_comment(lead(new)) and lead(old):
        changes["leading_lines"] = lead(old)
    return new.with_changes(**changes)


def _merged_block(new: object, old: object) -> object:
    if not isinstance(new, cst.IndentedBlock) or not isinstance(old, cst.IndentedBlock):
        return new
    header = new.header if new.header.comment else old.header
    return old.with_changes(body=keep(new.body, old.body), header=header)

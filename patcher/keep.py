"""What survives when a fix writes statements anew: those that it repeats stay, comments and layout included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import libcst as cst

from patcher.meaning import digest, meaning_fields

Statements = Sequence[cst.CSTNode]
_PARTS = frozenset({"body", "orelse", "finalbody", "handlers", "params"})


def keep(new: Statements, old: Statements) -> list[tuple[cst.CSTNode, cst.CSTNode | None]]:
    """The new statements, each as the old one that it repeats, or with what it has of one; and which one that is."""
    left = [(digest([node]), node) for node in old]
    taken = [_take(left, node) for node in new]
    result: list[tuple[cst.CSTNode, cst.CSTNode | None]] = []
    for node, same in zip(new, taken, strict=True):
        near = None if same is not None else _of_same_head([other for _, other in left], node)
        if same is not None:
            result.append((_with_own_lead(same, node), same))
        else:
            result.append((node if near is None else _merged(node, near), near))
    return result


def lead(node: cst.CSTNode) -> list[cst.EmptyLine]:
    """The blank lines and comments above a statement."""
    return list(getattr(node, "leading_lines", []))


def has_comment(lines: Sequence[cst.EmptyLine]) -> bool:
    """Is any of them a comment?"""
    return any(line.comment for line in lines)


def set_apart(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Of the lines above a statement those that are not about it: up to the last blank line."""
    return list(lines[: max((i + 1 for i, line in enumerate(lines) if not line.comment), default=0)])


def _take(left: list[tuple[str, cst.CSTNode]], node: cst.CSTNode) -> cst.CSTNode | None:
    meaning = digest([node])
    found = next((pair for pair in left if pair[0] == meaning), None)
    if found is None:
        return None
    left.remove(found)
    return found[1]


def _with_own_lead(same: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode:
    """The old statement; a comment that the fix writes above it takes the place of the old one."""
    own = lead(node)
    if same is node or not own or (lead(same) and not has_comment(own)):
        return same
    return same.with_changes(leading_lines=[*set_apart(lead(same)), *own])


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
        elif name == "params":
            continue
        elif name not in meaning and name != "leading_lines":
            changes[name] = theirs
        elif isinstance(mine, cst.CSTNode) and isinstance(theirs, cst.CSTNode):
            changes[name] = theirs if digest([mine]) == digest([theirs]) else _merged(mine, theirs)
    if not has_comment(lead(new)) and lead(old):
        changes["leading_lines"] = lead(old)
    return new.with_changes(**changes)


def _merged_block(new: object, old: object) -> object:
    if new is old or not isinstance(new, cst.IndentedBlock) or not isinstance(old, cst.IndentedBlock):
        return new
    header = new.header if new.header.comment else old.header
    return old.with_changes(body=[node for node, _ in keep(new.body, old.body)], header=header)

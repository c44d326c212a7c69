"""What survives when a fix writes statements anew: those that it repeats stay, comments and layout included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import libcst as cst

from patcher.meaning import digest, is_absent, is_node, meaning_fields

Statements = Sequence[cst.CSTNode]
_PARTS = frozenset({"decorators", "body", "orelse", "finalbody", "handlers", "params"})
_OWN = frozenset({"leading_lines", "params"})


def keep(new: Statements, old: Statements) -> list[tuple[cst.CSTNode, cst.CSTNode | None]]:
    """The new statements, each as the old one that it repeats, or with what it has of one; and which one that is."""
    left = [(digest([node]), node) for node in old]
    taken = [_take(left, node) for node in new]
    result: list[tuple[cst.CSTNode, cst.CSTNode | None]] = []
    for node, same in zip(new, taken, strict=True):
        near = None if same is not None else _of_same_head(left, node)
        if same is not None:
            result.append((_with_own_lead(same, node), same))
        else:
            result.append((node if near is None else merged(node, near), near))
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


def _of_same_head(left: list[tuple[str, cst.CSTNode]], node: cst.CSTNode) -> cst.CSTNode | None:
    """The one old statement that the new one is another form of; None if there is none, or more than one."""
    head = _head(node)
    found = [pair for pair in left if head and type(pair[1]) is type(node) and _head(pair[1]) == head]
    if len(found) != 1:
        return None
    left.remove(found[0])
    return found[0][1]


def _head(node: cst.CSTNode) -> str:
    """What a statement is known by: a block's condition or name, what is assigned to, what is called."""
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node.name.value
    if isinstance(node, cst.SimpleStatementLine):
        only = node.body[0] if len(node.body) == 1 else None
        if isinstance(only, cst.Assign):
            return digest(only.targets)
        call = only.value if isinstance(only, cst.Expr) else None
        return digest([call.func]) if isinstance(call, cst.Call) else ""
    held = (getattr(node, name) for name in meaning_fields(type(node)) if name not in _PARTS)
    return digest([value for value in held if isinstance(value, cst.CSTNode)])


def merged(new: cst.CSTNode, old: cst.CSTNode) -> cst.CSTNode:
    """The new code with the old one's layout, and the old one's own nodes where they mean the same."""
    if type(old) is not type(new):
        return new
    if digest([new]) == digest([old]):
        return old
    if isinstance(new, cst.IndentedBlock) and isinstance(old, cst.IndentedBlock):
        header = new.header if new.header.comment else old.header
        body = [node for node, _ in keep(new.body, old.body)]
        return new.with_changes(body=body, header=header, footer=old.footer, indent=old.indent)
    changes = _merged_fields(new, old)
    if changes is None:
        return new
    if lead(old) and not has_comment(lead(new)):
        changes["leading_lines"] = lead(old)
    try:
        result = new.with_changes(**changes)
    except cst.CSTValidationError:  # the old layout does not fit, as no space after a ``not`` that had brackets
        return new
    return result if digest([result]) == digest([new]) else new


def _skipped(old: cst.CSTNode) -> frozenset[str]:
    """The comment at the end of a statement of one line is on a line that changes."""
    if isinstance(old, cst.SimpleStatementLine):
        code = cst.Module([]).code_for_node(old.with_changes(leading_lines=[]))
        return _OWN if "\n" in code.strip() else _OWN | {"trailing_whitespace"}
    return _OWN


def _merged_fields(new: cst.CSTNode, old: cst.CSTNode) -> dict[str, object] | None:
    """What the new node takes over; None where the two are not of one shape."""
    meaning = meaning_fields(type(new))
    changes: dict[str, object] = {}
    for name in (field.name for field in fields(type(new)) if field.name not in _skipped(old)):
        mine, theirs = getattr(new, name), getattr(old, name)
        if name not in meaning:
            changes[name] = theirs
        elif is_absent(mine) != is_absent(theirs):
            if name not in _PARTS:
                return None
        elif is_node(mine) and is_node(theirs):
            changes[name] = merged(mine, theirs)
        elif isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
            if len(mine) == len(theirs):
                changes[name] = [merged(a, b) for a, b in zip(mine, theirs, strict=True)]
            elif name != "decorators":  # a fix adds to these
                return None
    return changes

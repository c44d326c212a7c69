"""What stands between the members of a comma-separated list when members come and go.

Members that stay keep their lines and their comments, new ones look like their neighbours, and a comment on a line
of its own survives the member that it stood over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import libcst as cst

Space: TypeAlias = cst.BaseParenthesizableWhitespace
Member = TypeVar("Member", bound=cst.CSTNode)

# Where LibCST keeps the space after a last member that has no comma; an import keeps it with its bracket.
_TAIL = {cst.Arg: "whitespace_after_arg", cst.Param: "whitespace_after_param", cst.ParamSlash: "whitespace_after"}


@dataclass(frozen=True)
class Row:
    """The space of a list: ``before`` its first member, and after each member, beyond its comma if it has one."""

    before: Space
    gaps: tuple[Space, ...]

    @property
    def separator(self) -> Space:
        """What a new member is set apart by: a line of its own if any other has one."""
        broken = (gap for gap in (self.before, *self.gaps[:-1]) if isinstance(gap, cst.ParenthesizedWhitespace))
        return next((without_comments(gap) for gap in broken), cst.SimpleWhitespace(" "))

    def rearranged(self, order: Sequence[int | None]) -> Row:
        """The space around other members: each that stays by its old index, each new one as None."""
        if not self.gaps:
            return Row(self.before, tuple(self._new_gap(k, order) for k in range(len(order))))
        row = self._without(set(range(len(self.gaps))) - set(order))
        return Row(row.before, tuple(row._gap(k, order) for k in range(len(order))))

    def _without(self, gone: set[int]) -> Row:
        """Fold the space after a member that goes into the space before it."""
        before, gaps, last_kept = self.before, list(self.gaps), -1
        for index in range(len(gaps)):
            if index not in gone:
                last_kept = index
            elif last_kept < 0:
                before = _merged(before, gaps[index])
            else:
                gaps[last_kept] = _merged(gaps[last_kept], gaps[index])
        return replace(self, before=before, gaps=tuple(gaps))

    def _gap(self, k: int, order: Sequence[int | None]) -> Space:
        origin, closing = order[k], self.gaps[-1]
        final = len(self.gaps) - 1
        if origin is None:
            return self._new_gap(k, order)
        if k < len(order) - 1:
            return self.gaps[origin] if origin != final else _with_comments(self.separator, closing)
        return closing if origin == final else _with_comments(without_comments(closing), self.gaps[origin])

    def _new_gap(self, k: int, order: Sequence[int | None]) -> Space:
        if k < len(order) - 1:
            return self.separator
        return without_comments(self.gaps[-1]) if self.gaps else cst.SimpleWhitespace("")


def without_comments(space: Space) -> Space:
    """The same line break and indentation, without the comments that belong to its neighbours."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])


def _merged(space: Space, gone: Space) -> Space:
    """One space for two with nothing left between them. What follows keeps its own indentation."""
    if not isinstance(gone, cst.ParenthesizedWhitespace):
        return space
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return gone
    comments = [line for line in gone.empty_lines if line.comment]
    return gone.with_changes(first_line=space.first_line, empty_lines=[*space.empty_lines, *comments])


def _with_comments(space: Space, source: Space) -> Space:
    """Keep the comment at the end of the member's own line, and the comment lines under it."""
    if not isinstance(source, cst.ParenthesizedWhitespace):
        return space
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=source.first_line, empty_lines=source.empty_lines)
    has_comment = source.first_line.comment or any(line.comment for line in source.empty_lines)
    return source if has_comment else space


def has_comma(member: cst.CSTNode) -> bool:
    """Does a comma follow the member in the source?"""
    return isinstance(getattr(member, "comma", None), cst.Comma)


def gap_after(member: cst.CSTNode, tail: Space | None = None) -> Space:
    """The space after a member, beyond its comma; ``tail`` is what follows a last one that can't hold it."""
    comma = getattr(member, "comma", None)
    if isinstance(comma, cst.Comma):
        return comma.whitespace_after
    key = _TAIL.get(type(member))
    return getattr(member, key) if key else tail or cst.SimpleWhitespace("")


def followed_by(member: Member, gap: Space, *, comma: bool) -> Member:
    """The member with that space after it, beyond its comma; an import can't hold it without one."""
    held = getattr(member, "comma", None)
    own = held if isinstance(held, cst.Comma) else cst.Comma()
    changes: dict[str, object] = {
        "comma": own.with_changes(whitespace_after=gap) if comma else cst.MaybeSentinel.DEFAULT
    }
    key = _TAIL.get(type(member))
    if key:
        changes[key] = cst.SimpleWhitespace("") if comma else gap
    return member.with_changes(**changes)

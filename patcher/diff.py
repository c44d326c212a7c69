"""Unified diffs out of planned bytes, and back in for comparison.

The headers are plain ``---``/``+++`` lines: git, run in a folder inside another repository, silently skips files
of a ``diff --git`` patch but not of a plain one.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from patcher.errors import RuleError

if TYPE_CHECKING:
    from unidiff.patch import Line

NO_NEWLINE = b"\\ No newline at end of file\n"
MAX_BYTES = 4 * 1024 * 1024


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes], *, context: int = 3) -> bytes:
    """A diff of every file that differs, in the order of the names; ``git apply`` and ``patch -p1`` take it."""
    return b"".join(_one(name, before[name], after[name], context) for name in sorted(before))


def _one(name: str, before: bytes, after: bytes, context: int) -> bytes:
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        _lines(before),
        _lines(after),
        f"a/{name}".encode(),
        f"b/{name}".encode(),
        n=context,
    )
    return b"".join(line if line.endswith(b"\n") else line + b"\n" + NO_NEWLINE for line in lines)


def _lines(data: bytes) -> list[bytes]:
    """Split as git and patch do, at line feeds only."""
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


Change: TypeAlias = "tuple[str, int | None, int | None, str]"


def changes(data: bytes, where: str) -> dict[str, list[Change]]:
    """What a diff says: for each path its removed and added lines, each with its sign, old and new number and text.

    Context does not count: only what changes, and where.

    Raises:
        RuleError: it is no unified diff.
    """
    if len(data) > MAX_BYTES:
        raise RuleError("a reviewed diff is larger than any that this tool writes", where=where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from unidiff.errors import UnidiffParseError  # noqa: PLC0415  felt at start-up, needed by one flag only
        from unidiff.patch import PatchSet  # noqa: PLC0415
    try:
        patch = PatchSet(data.decode("utf-8", "surrogateescape"))
    except (UnidiffParseError, ValueError, IndexError) as error:
        raise RuleError("a reviewed diff can't be read", where=where, found=str(error)) from error
    if not patch and data.strip():
        raise RuleError("a reviewed diff has no change in it", where=where)
    if len({file.path for file in patch}) < len(patch):
        raise RuleError("a reviewed diff speaks of one file twice", where=where)
    return {file.path: [change for hunk in file for change in _changes_of(hunk)] for file in patch}


def _changes_of(hunk: Iterable[Line]) -> Iterator[Change]:
    """The lines that change; a mark that the file does not end with a newline belongs to the line before it."""
    before = " "
    for line in hunk:
        kind = before if line.line_type == "\\" else line.line_type
        if kind != " ":
            yield line.line_type, line.source_line_no, line.target_line_no, line.value
        before = kind


def same(one: bytes, other: bytes, where: str) -> bool:
    """Do two diffs make the same change, whatever their context and comments? RuleError if ``other`` is no diff."""
    return changes(other, where) == changes(one, "the plan")

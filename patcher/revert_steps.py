"""The steps of a revert, and the question whether a file is still ours."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from patcher import record as records
from patcher import recordfile
from patcher.atomic import Step
from patcher.disk import FileState, look, sha256
from patcher.errors import REINSTALL, DriftError
from patcher.foreign import hunk
from patcher.place import HOME
from patcher.record import INDEX, RECORD_JSON, Kept, PatchedFile, Record
from patcher.target import PATHS, Target

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNDO = f"{REINSTALL}, which also undoes the patch"


def steps(target: Target, record: Record, ours: Iterable[PatchedFile]) -> list[Step]:
    """Remove the record, take our rows out of RECORD, put the originals of ``ours`` back.

    Raises:
        FileError: an original that was kept is gone or was changed.
    """
    planned = [home_step(target, name, None) for name in sorted(records.NAMES)]
    index = records.index(target)
    if index is not None and record.index is not None and _lists_us(target, index):
        after = index_without_us(target, record.index, index)
        planned.append(Step(INDEX, records.place(target, INDEX), index, after))
    for file in ours:
        found = look(target.path(file.path))
        assert found is not None  # noqa: S101 - is_ours has read it
        first = records.original(target, file.path, file)
        after = dataclasses.replace(first, uid=found.uid, gid=found.gid)
        planned.append(Step(file.path, target.path(file.path), found, after))
    return [step for step in planned if step.before != step.after]


def home_step(target: Target, name: str, after: FileState | None) -> Step:
    """Give the step that makes ``after`` of a file in the record's folder."""
    path = records.home(target) / name
    return Step(HOME + name, path, look(path), after)


def index_without_us(target: Target, kept: Kept, index: FileState) -> FileState:
    """Take our rows out of RECORD; the kept original itself, if nobody else has changed it since."""
    first = records.original(target, INDEX, kept)
    ours = {*PATHS, *(records.row(target, name) for name in records.NAMES)}
    data = recordfile.without_rows(index.data, first.data, ours)
    if data.rstrip(b"\r\n") == first.data.rstrip(b"\r\n"):
        return dataclasses.replace(first, uid=index.uid, gid=index.gid)
    return dataclasses.replace(index, data=data)


def is_ours(target: Target, file: PatchedFile) -> bool:
    """Tell our patched file (True) from an original that came back by a reinstall or by hand (False).

    Raises:
        DriftError: it is neither.
    """
    path = target.path(file.path)
    found, index = look(path), records.index(target)
    rows = recordfile.hashes(index.data) if index else {}
    reinstalled = index is not None and not _lists_us(target, index)
    if found is None:
        if reinstalled and file.path not in rows:
            return False
        raise DriftError("a patched file is gone", where=str(path), hint=_UNDO)
    if sha256(found.data) == file.after:
        return True
    if sha256(found.data) == file.before or (reinstalled and rows.get(file.path) == recordfile.row_hash(found.data)):
        return False
    raise DriftError(
        "the file was edited after apply; nothing was written",
        where=str(path),
        expected=f"the file as apply left it, sha256 {file.after}",
        found=hunk(records.patched_bytes(target, file), found.data, file.path),
        hint="take this edit out again, then revert; or " + _UNDO,
    )


def _lists_us(target: Target, index: FileState) -> bool:
    return records.row(target, RECORD_JSON) in recordfile.hashes(index.data)

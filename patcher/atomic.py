"""All files of a transaction, or none: stage, commit, undo, and the same again after a kill.

Beside each file stand, while the work goes on, its successor (``.NAME.speculators-patch-new``) and itself
under a second name (``-old``, a hard link where the file system has them). A file changes by one rename, so
that at every moment it is whole; the journal makes the set whole.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from patcher import disk, journal
from patcher.disk import FileState
from patcher.errors import REINSTALL, FileError
from patcher.journal import Entry, Journal, Opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Outcome = Literal["completed", "rolled back"]


@dataclass(frozen=True)
class Step:
    """One file to change: its journal name, its path, what stands there now and what shall."""

    name: str
    path: Path
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True)
class Place:
    """Where a transaction works.

    Attributes:
        anchor: the folder of the journal and the lock.
        home: the record's folder, made and removed as needed.
        dist_info: the bare name of the dist-info folder.
        resolve: journal name -> path; raises FileError for any name that isn't the target's.
        stale: lists the bytecode to delete.
    """

    anchor: Path
    home: Path
    dist_info: str | None
    resolve: Callable[[str], Path]
    stale: Callable[[], list[Path]]


def run(place: Place, action: Literal["apply", "revert"], steps: tuple[Step, ...], check: Callable[[], None]) -> None:
    """Carry out all steps or none.

    Args:
        place: where.
        action: for the journal.
        steps: what.
        check: called while nothing is decided yet; what it raises takes the work back.

    Raises:
        FileError: the operating system refused something; everything is as it was.
    """
    entries = tuple(Entry(step.name, disk.digest(step.before), disk.digest(step.after)) for step in steps)
    opened: Opened | None = None
    try:
        opened = journal.begin(place.anchor, Journal(1, action, place.dist_info, entries))
        for step in steps:
            _stage(step, place)
            check()
        _sync(place, entries)
        opened = opened.advance("write")
        _forward(place, entries)
    except BaseException as error:
        _take_back(place, entries, opened, error)
        if isinstance(error, OSError):
            raise refused(error) from error
        raise
    with contextlib.suppress(OSError):  # the work is done; what can't be tidied now, the next command tidies
        _tidy(place, entries, opened)


def recover(place: Place, opened: Opened) -> Outcome:
    """Bring the transaction of a killed process to its end; complete only if every file is as it left it.

    Raises:
        FileError: a staged or kept file isn't what the journal says.
        OSError: the operating system refused something; the journal stays.
    """
    entries = opened.journal.entries
    outcome: Outcome = "rolled back"
    if opened.phase == "write" and all(_ready(place, entry) for entry in entries):
        _forward(place, entries)
        outcome = "completed"
    elif opened.phase != "stage":
        opened = opened if opened.phase == "undo" else opened.advance("undo")
        _back(place, entries)
    _tidy(place, entries, opened)
    return outcome


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.speculators-patch-new")


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.speculators-patch-old")


def _stage(step: Step, place: Place) -> None:
    if step.path.parent == place.home and not place.home.is_dir():
        _make_home(place.home)
    if step.after is not None:
        disk.write_new(_new(step.path), step.after)
    if step.before is not None:
        disk.keep(step.path, _old(step.path))


def _make_home(home: Path) -> None:
    parent = home.parent.stat()
    home.mkdir()
    home.chmod(parent.st_mode & 0o7777)  # whatever the umask
    if os.geteuid() == 0:
        os.chown(home, parent.st_uid, parent.st_gid)


def _forward(place: Place, entries: tuple[Entry, ...]) -> None:
    """Put every staged file in place. Bytecode goes before, so that none is ever older than its source, and after."""
    _clear(place)
    for entry in entries:
        path = place.resolve(entry.name)
        if entry.after is None:
            path.unlink(missing_ok=True)
        elif os.path.lexists(_new(path)):
            disk.put(_new(path), path)
    _clear(place)
    _sync(place, entries)


def _back(place: Place, entries: tuple[Entry, ...]) -> None:
    """Put every kept file back where ours stands; a file that someone else wrote meanwhile is left alone."""
    ours = [entry for entry in entries if _digest_at(place.resolve(entry.name)) == entry.after]
    for entry in ours:
        old = _old(place.resolve(entry.name))
        if entry.before is not None and os.path.lexists(old):
            _verify(old, entry.before)
    for entry in ours:
        path = place.resolve(entry.name)
        if entry.before is None:
            path.unlink(missing_ok=True)
        elif os.path.lexists(_old(path)):
            disk.put(_old(path), path)
    _clear(place)
    _sync(place, entries, must=False)


def _take_back(place: Place, entries: tuple[Entry, ...], opened: Opened | None, error: BaseException) -> None:
    """Undo after a failure. Where even that fails, the journal stays, and the next command goes on."""
    try:
        if opened is None:
            journal.drop_draft(place.anchor)
            opened = journal.find(place.anchor)
        if opened is None:
            return
        if opened.phase == "stage" and (found := journal.find(place.anchor)):
            opened = found  # the rename into "write" was made, and what failed came after it
        if opened.phase != "stage":
            opened = opened.advance("undo")
            _back(place, entries)
        _tidy(place, entries, opened)
    except OSError as second:
        raise FileError(
            "the change failed, and taking it back failed too",
            where=str(place.anchor),
            found=f"{error}; then {second}",
            hint="mend the file system and run any command of this tool: it goes on from the journal",
        ) from error


def _tidy(place: Place, entries: tuple[Entry, ...], opened: Opened) -> None:
    for entry in entries:
        path = place.resolve(entry.name)
        _new(path).unlink(missing_ok=True)
        _old(path).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # mostly it holds the record
        place.home.rmdir()
    with contextlib.suppress(OSError):  # empty where an uninstall came between the kill and now
        place.home.parent.rmdir()
    opened.close()


def _ready(place: Place, entry: Entry) -> bool:
    """Tell whether a file is written already, or is still the old one with its successor beside it."""
    path = place.resolve(entry.name)
    there = _digest_at(path)
    staged = os.path.lexists(_new(path))
    if staged and entry.after is not None:
        _verify(_new(path), entry.after)
    return there == entry.after or (there == entry.before and (staged or entry.after is None))


def _digest_at(path: Path) -> str | None:
    return disk.digest(disk.look(path))


def _verify(path: Path, expected: str) -> None:
    if _digest_at(path) != expected:
        raise FileError(
            "a file that a killed transaction left was changed since; it is not used",
            where=str(path),
            expected=expected,
            hint=f"delete it, then {REINSTALL}",
        )


def _clear(place: Place) -> None:
    for pyc in place.stale():
        pyc.unlink(missing_ok=True)


def _sync(place: Place, entries: tuple[Entry, ...], *, must: bool = True) -> None:
    folders = {place.resolve(entry.name).parent for entry in entries}
    for folder in sorted(folders):
        if folder.is_dir():
            disk.sync_folder(folder, must=must)


def refused(error: OSError) -> FileError:
    """Turn the operating system's refusal into the failure that the user is told."""
    return FileError(
        "the file system refused the change; everything is as it was",
        where=str(error.filename) if error.filename is not None else None,
        found=error.strerror or str(error),
    )

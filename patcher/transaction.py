"""The only module that changes an installation: apply, revert, and healing after a kill.

apply_steps.py and revert_steps.py plan the files, RECORD and the record; atomic.py carries the steps out.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from patcher import atomic, journal, preflight, revert_steps
from patcher import record as records
from patcher.apply_steps import Apply, Facts
from patcher.disk import FileState, look, sha256
from patcher.errors import DriftError, FileError
from patcher.foreign import hunk
from patcher.lock import exclusive
from patcher.place import anchor, place
from patcher.signals import Deferred, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from patcher.record import Record
    from patcher.target import Target

_LATEST = 253402300799  # the last second of the year 9999, where datetime ends

__all__ = ["Facts", "Healed", "Result", "apply", "heal", "revert"]


@dataclass(frozen=True)
class Healed:
    """What became of a killed process's transaction."""

    action: Literal["apply", "revert"]
    outcome: atomic.Outcome


@dataclass(frozen=True)
class Result:
    """What was done.

    Attributes:
        outcome: "applied"; "already" (it stood there, by our record); "reverted"; "cleared" (only the record
            was removed: the files were no longer ours); "nothing".
        changed: the names of the files written.
        healed: what a killed process had left, if anything.
    """

    outcome: Literal["applied", "already", "reverted", "cleared", "nothing"]
    changed: tuple[str, ...] = ()
    healed: Healed | None = None


def apply(
    target: Target,
    changes: Mapping[str, tuple[bytes, bytes]],
    facts: Facts,
    environ: Mapping[str, str] = os.environ,
) -> Result:
    """Write the patched files, all or none.

    Args:
        target: the installation.
        changes: name (target.PATHS) -> (bytes that were planned from, bytes to write).
        facts: goes into the record.
        environ: for SOURCE_DATE_EPOCH, seconds, which then is every written file's mtime.

    Raises:
        DriftError: a file is no longer what was planned from.
        FileError: not writable, disk full, locked for too long, a tampered record; nothing was changed.
        TargetError: a folder of the package is a link to elsewhere.
    """
    wanted = {name: pair for name, pair in changes.items() if pair[0] != pair[1]}
    if not wanted:
        return Result("nothing")
    epoch = _epoch(environ)
    preflight.check(target)
    with _alone(target) as signals:
        healed = _recover(target)
        record = records.load(target)
        found = {name: _present(target, name) for name in wanted}
        if all(_stands(record, name, found[name], pair[1]) for name, pair in wanted.items()):
            return Result("already", healed=healed)
        for name, (before, _) in wanted.items():
            _expect(target.path(name), before, found[name].data)
        after = {name: pair[1] for name, pair in wanted.items()}
        steps = Apply(target, facts, epoch, record, found, after).steps()
        atomic.run(place(target), "apply", tuple(steps), signals.check)
    return Result("applied", tuple(wanted), healed)


def revert(target: Target) -> Result:
    """Put back, byte for byte, what was there before apply: files, links, modes, times and RECORD.

    Raises:
        DriftError: a patched file was edited since.
        FileError: not writable, a tampered record; nothing was changed.
    """
    if not journal.traces(anchor(target)) and records.load(target) is None and not records.home(target).exists():
        return Result("nothing")
    preflight.check(target)
    with _alone(target) as signals:
        healed = _recover(target)
        record = records.load(target)
        if record is None:
            return Result("nothing", healed=healed)
        ours = [file for file in record.files if revert_steps.is_ours(target, file)]
        atomic.run(place(target), "revert", tuple(revert_steps.steps(target, record, ours)), signals.check)
    return Result("reverted" if ours else "cleared", tuple(file.path for file in ours), healed)


def heal(target: Target) -> Healed | None:
    """Complete or take back what a killed process left; None where nothing was left.

    A running process's transaction is waited for.

    Raises:
        FileError: not writable, or the journal was tampered with.
    """
    folder = anchor(target)
    traces = journal.traces(folder)
    if not traces:
        return None
    if traces == [folder / journal.LOCK] and not os.access(folder, os.W_OK | os.X_OK):
        return None  # only a lock file, of no consequence
    preflight.check(target)
    with _alone(target):
        return _recover(target)


@contextmanager
def _alone(target: Target) -> Iterator[Deferred]:
    """Hold the lock, and signals back until it is free again; what the system refuses meanwhile is a FileError."""
    path = anchor(target) / journal.LOCK
    try:
        with Deferred() as signals, exclusive(path, signals.check):
            yield signals
    except Stopped:  # only where the signal's own handler lets the program go on
        raise FileError("stopped by a signal; everything is as it was", where=str(path.parent)) from None
    except OSError as error:
        raise atomic.refused(error) from error


def _recover(target: Target) -> Healed | None:
    opened = journal.find(anchor(target))
    journal.drop_draft(anchor(target))
    if opened is None:
        return None
    return Healed(opened.journal.action, atomic.recover(place(target, opened.journal.dist_info), opened))


def _stands(record: Record | None, name: str, found: FileState, after: bytes) -> bool:
    file = record.of(name) if record else None
    return file is not None and found.data == after and file.after == sha256(after)


def _expect(path: Path, expected: bytes, found: bytes) -> None:
    if found != expected:
        raise DriftError(
            "the file has changed since the change was planned; nothing was written",
            where=str(path),
            found=hunk(expected, found, path.name),
            hint="look at the new state and plan again",
        )


def _present(target: Target, name: str) -> FileState:
    found = look(target.path(name))
    if found is None:
        raise DriftError("the file is gone", where=str(target.path(name)))
    return found


def _epoch(environ: Mapping[str, str]) -> int | None:
    text = environ.get("SOURCE_DATE_EPOCH")
    if not text:
        return None
    if not (text.isdecimal() and text.isascii() and len(text) <= len(str(_LATEST)) and int(text) <= _LATEST):
        raise FileError("SOURCE_DATE_EPOCH is not a number of seconds until the year 9999", found=text[:40])
    return int(text)

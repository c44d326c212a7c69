"""The journal of one transaction. Its content never changes; its file name says how far the work has come.

``draft`` is being written and means nothing; ``stage``: new files are being made beside the old ones, the
targets are untouched; ``write``: all is staged, the work will be completed; ``undo``: it will be taken back.
A phase changes by one rename, which needs no space on a full disk.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from patcher import disk, sealed
from patcher.disk import FileState

if TYPE_CHECKING:
    from pathlib import Path

Phase = Literal["stage", "write", "undo"]
PHASES: tuple[Phase, ...] = ("stage", "write", "undo")
DRAFT = "draft"
PREFIX = ".speculators-patch."
LOCK = f"{PREFIX}lock"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the transaction: a name that the target resolves, and disk.digest before and after."""

    name: str
    before: str | None
    after: str | None


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All files of one transaction; ``dist_info`` is the bare name of the folder they belong to."""

    schema: Literal[1]
    action: Literal["apply", "revert"]
    dist_info: str | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Opened:
    """A journal on disk."""

    folder: Path
    phase: Phase
    journal: Journal

    def advance(self, phase: Phase) -> Opened:
        """Enter the next phase, on the disk when this returns; only "undo" does not wait for it. Raises OSError."""
        _at(self.folder, self.phase).replace(_at(self.folder, phase))
        disk.sync_folder(self.folder, must=phase != "undo")
        return Opened(self.folder, phase, self.journal)

    def close(self) -> None:
        """End the transaction. Raises OSError."""
        _at(self.folder, self.phase).unlink(missing_ok=True)
        disk.sync_folder(self.folder, must=False)


def begin(folder: Path, journal: Journal) -> Opened:
    """Write the journal, on the disk when this returns. Raises OSError; a draft may be left then."""
    draft = _at(folder, DRAFT)
    owner = folder.stat()
    data = sealed.seal(journal)
    disk.write_new(draft, FileState(data, None, 0o644, owner.st_uid, owner.st_gid, owner.st_mtime_ns))
    draft.replace(_at(folder, "stage"))
    disk.sync_folder(folder)
    return Opened(folder, "stage", journal)


def find(folder: Path) -> Opened | None:
    """Read the journal that a killed process left.

    Raises:
        FileError: it was tampered with.
    """
    for phase in PHASES:
        path = _at(folder, phase)
        data = sealed.read(path)
        if data is not None:
            return Opened(folder, phase, sealed.unseal(data, Journal, path))
    return None


def drop_draft(folder: Path) -> bool:
    """Remove a draft that a killed process left; tell whether there was one. Raises OSError."""
    draft = _at(folder, DRAFT)
    left = os.path.lexists(draft)
    draft.unlink(missing_ok=True)
    return left


def traces(folder: Path) -> list[Path]:
    """List what a transaction, running or killed, has in ``folder``."""
    names = [*(f"{PREFIX}{phase}" for phase in (DRAFT, *PHASES)), LOCK]
    return [folder / name for name in names if os.path.lexists(folder / name)]


def _at(folder: Path, phase: str) -> Path:
    return folder / f"{PREFIX}{phase}"

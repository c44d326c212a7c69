"""JSON on disk under its own hash, so that a changed or half-written file is told from a good one."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, TypeVar

import msgspec

from patcher.disk import sha256
from patcher.errors import REINSTALL, FileError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T", bound=msgspec.Struct)

# Far above two source files and a RECORD; a larger file is not ours.
LIMIT = 16 << 20


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seal: str
    content: msgspec.Raw


def seal(content: msgspec.Struct) -> bytes:
    """Encode a struct as indented JSON beside the SHA-256 of its compact form."""
    compact = msgspec.json.encode(content)
    return msgspec.json.format(msgspec.json.encode(_Sealed(sha256(compact), msgspec.Raw(compact))), indent=2) + b"\n"


def unseal(data: bytes, kind: type[T], where: Path) -> T:
    """Decode what ``seal`` made.

    Raises:
        FileError: not of this schema, or not what was sealed.
    """
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        content = msgspec.json.decode(sealed.content, type=kind)
    except msgspec.MsgspecError as error:
        raise _refused(where, str(error)) from None
    if sha256(msgspec.json.encode(content)) != sealed.seal:
        raise _refused(where, "its content does not have the hash it was sealed with")
    return content


def read(path: Path) -> bytes | None:
    """Read a regular file of ours, never through a link; None where there is none.

    Raises:
        FileError: a link, a folder, too large, unreadable.
    """
    try:
        entry = path.lstat()
        if not stat.S_ISREG(entry.st_mode) or entry.st_size > LIMIT:
            raise _refused(path, "not a plain file of a sensible size")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError("cannot read what an earlier apply wrote", where=str(path), found=error.strerror) from error


def _refused(path: Path, found: str) -> FileError:
    return FileError(
        "a file that an earlier apply wrote was changed since; nothing of it is used",
        where=str(path),
        found=found,
        hint=f"remove it and {REINSTALL}, which starts afresh",
    )

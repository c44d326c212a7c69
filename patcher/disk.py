"""Whole-file steps on disk: look, stage, keep, put in place."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patcher.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

# Where a hard link is refused (other owner, or a file system without them), a copy does.
_NO_LINK = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(frozen=True)
class FileState:
    """What stands, or shall stand, at a path.

    Attributes:
        data: the file's bytes; of a link, the bytes behind it.
        link: what the symbolic link says, None for a regular file.
        mode: permission bits (of a link: of the file behind it).
        uid, gid: the owner, kept where we may.
        mtime_ns: nanoseconds since the epoch (of a link: its own).
    """

    data: bytes
    link: bytes | None
    mode: int
    uid: int
    gid: int
    mtime_ns: int


def sha256(data: bytes) -> str:
    """Give the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest(state: FileState | None) -> str | None:
    """Name a state by its kind and the SHA-256 of its bytes; None for absence."""
    if state is None:
        return None
    return f"link:{sha256(state.link)}" if state.link is not None else f"file:{sha256(state.data)}"


def look(path: Path) -> FileState | None:
    """Read what stands at ``path``; None where nothing does.

    Raises:
        FileError: it is neither a regular file nor a link to one, or can't be read.
    """
    try:
        entry = path.lstat()
        link = os.fsencode(path.readlink()) if stat.S_ISLNK(entry.st_mode) else None
        behind = path.stat() if link is not None else entry
        if not stat.S_ISREG(behind.st_mode):
            raise FileError("not a regular file", where=str(path))
        data = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileError("a link that leads nowhere", where=str(path), found=str(path.readlink())) from None
        return None
    except OSError as error:
        raise FileError("cannot read the file", where=str(path), found=error.strerror) from error
    return FileState(data, link, stat.S_IMODE(behind.st_mode), entry.st_uid, entry.st_gid, entry.st_mtime_ns)


def write_new(path: Path, state: FileState) -> None:
    """Make a new file of ``state`` at ``path``, on the disk when this returns. Raises OSError; never overwrites."""
    if state.link is not None:
        path.symlink_to(os.fsdecode(state.link))
        _own(path, state)
        os.utime(path, ns=(state.mtime_ns, state.mtime_ns), follow_symlinks=False)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        rest = memoryview(state.data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        _own(path, state)
        os.fchmod(fd, state.mode)  # after chown, which clears bits
        os.utime(fd, ns=(state.mtime_ns, state.mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)


def _own(path: Path, state: FileState) -> None:
    made = path.lstat()
    if (made.st_uid, made.st_gid) != (state.uid, state.gid) and os.geteuid() == 0:
        os.chown(path, state.uid, state.gid, follow_symlinks=False)


def keep(path: Path, old: Path) -> None:
    """Keep what stands at ``path`` as ``old`` too: the same inode, so that putting it back restores all of it."""
    try:
        os.link(path, old, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        state = look(path)
        if state is not None:
            write_new(old, state)


def put(staged: Path, path: Path) -> None:
    """Rename ``staged`` over ``path``, at once and whole."""
    staged.replace(path)
    staged.unlink(missing_ok=True)  # rename(2) leaves both where both are links to one inode


def sync_folder(folder: Path, *, must: bool = True) -> None:
    """Bring a folder's entries to the disk; file systems that can't do this for folders are let off.

    ``must`` is False for work that goes on whatever the disk says, as taking back does.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if must and error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)

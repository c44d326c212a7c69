"""One lock beside the target: the kernel's, so that a dead process never holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from patcher.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A transaction takes milliseconds; sixty-four of them on a slow network file system take less than this.
WAIT_SECONDS = 300.0


@contextmanager
def exclusive(path: Path, check: Callable[[], None], seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock file ``path``; it is removed again before the lock is let go.

    Args:
        path: the lock file; its folder must exist.
        check: called while waiting; what it raises ends the wait.
        seconds: how long to wait.

    Raises:
        FileError: another process holds the lock for longer than ``seconds``, or the file can't be made.
    """
    fd = _acquire(path, check, time.monotonic() + seconds)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held: who waits sees that its file is no longer the path's
        os.close(fd)


def _acquire(path: Path, check: Callable[[], None], deadline: float) -> int:
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            check()
            if time.monotonic() > deadline:
                raise FileError(
                    "another process is patching this environment and does not finish",
                    where=str(path),
                    hint="wait for it, or end it; a lock of a dead process does not block",
                ) from None
            time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - spreads the waiting processes, guards nothing
        except BaseException:
            os.close(fd)
            raise
        else:
            os.close(fd)


def _open(path: Path) -> int:
    """Open for writing, which NFS wants for an exclusive lock; never through a link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, path.parent.stat().st_mode & 0o666)
    except OSError as error:
        raise FileError("cannot lock the environment", where=str(path), found=error.strerror) from error


def _is_at(fd: int, path: Path) -> bool:
    """Tell whether the locked file is still the one at ``path``, or its last holder has removed it."""
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)

"""See before any write that the change can be made where it has to be made."""

from __future__ import annotations

import os
import pwd

from patcher import record as records
from patcher.errors import FileError, TargetError
from patcher.place import anchor, stale
from patcher.target import Target


def check(target: Target) -> None:
    """Check every folder of a transaction; nothing is written.

    Raises:
        FileError: a folder can't be written; names it and the user.
        TargetError: a folder of the package is a link to elsewhere.
    """
    _check_links(target)
    home = records.home(target)
    folders = {anchor(target), home.parent, *(path.parent for path in target.files.values() if path.parent.exists())}
    folders |= {home} if home.exists() else set()
    for folder in sorted(folders | {pyc.parent for pyc in stale(target)}):
        if not os.access(folder, os.W_OK | os.X_OK):
            status = folder.stat()
            raise FileError(
                "the folder cannot be written; nothing was changed",
                where=str(folder),
                found=f"mode {status.st_mode & 0o7777:04o}, owner {_user(status.st_uid)}; we are {_user(os.geteuid())}",
                hint="run as the owner of the environment, or make its file system writable",
            )


def _check_links(target: Target) -> None:
    base = target.speculators.base
    folders = {path.parent: (base.resolve() / name).parent for name, path in target.files.items()}
    if dist_info := target.speculators.dist_info:
        folders[dist_info] = dist_info.parent.resolve() / dist_info.name
    for folder, expected in folders.items():
        if folder.exists() and folder.resolve() != expected:
            raise TargetError(
                "a folder of the package is a link to elsewhere; what others share is not patched",
                where=str(folder),
                found=str(folder.resolve()),
                hint="install speculators into this environment by itself",
            )


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"

"""Where a transaction on a target works, and what it may name there."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from patcher import bytecode
from patcher import record as records
from patcher.atomic import Place
from patcher.errors import FileError
from patcher.record import INDEX
from patcher.target import PATHS, Target

if TYPE_CHECKING:
    from pathlib import Path

HOME = "record/"


def anchor(target: Target) -> Path:
    """Give the folder that holds the lock and the journal: site-packages."""
    dist_info = target.speculators.dist_info
    return dist_info.parent if dist_info else target.speculators.base


def place(target: Target, dist_info: str | None = None) -> Place:
    """Say where a transaction works; ``dist_info`` names another folder where a journal of before an upgrade does."""
    own = target.speculators.dist_info
    if dist_info is not None and (own is None or own.name != dist_info):
        if not re.fullmatch(r"speculators-[^/\\]+\.dist-info", dist_info, re.IGNORECASE):
            raise FileError(
                "the journal names a folder that isn't the target's", where=str(anchor(target)), found=dist_info
            )
        there = dataclasses.replace(target.speculators, dist_info=anchor(target) / dist_info)
        target = dataclasses.replace(target, speculators=there)
    home = records.home(target)

    def resolve(name: str) -> Path:
        if name in PATHS or (name == INDEX and target.speculators.dist_info):
            return records.place(target, name)
        if name.startswith(HOME) and name[len(HOME) :] in records.NAMES:
            return home / name[len(HOME) :]
        raise FileError("the journal names a file that isn't the target's", where=str(anchor(target)), found=name)

    name = target.speculators.dist_info.name if target.speculators.dist_info else None
    return Place(anchor(target), home, name, resolve, lambda: stale(target))


def stale(target: Target) -> list[Path]:
    """List the bytecode of the files."""
    return bytecode.files(target.files.values(), target.pycache_prefix)

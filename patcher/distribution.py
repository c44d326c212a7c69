"""Which installed distribution a package belongs to. Reads ``*.dist-info`` folders, imports nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Distribution:
    """One ``*.dist-info`` folder.

    Attributes:
        folder: the dist-info folder.
        base: the folder that holds it (site-packages).
        name: as METADATA spells it.
        version: as METADATA spells it.
        owns: RECORD lists the package's ``__init__.py``.
        record: the RECORD file, None where there is none.
        origin: what direct_url.json says in words ("editable install of ...", "install from git+..."), else None.
        checkout: the folder that an editable install points to, else None.
    """

    folder: Path
    base: Path
    name: str
    version: str
    owns: bool
    record: Path | None
    origin: str | None
    checkout: str | None


def normalized(name: str) -> str:
    """Spell a distribution's name as the packaging specification compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find(path: Iterable[Path], package: str) -> list[Distribution]:
    """Find the distributions on ``path`` that own ``package``, or that are named for it."""
    found = {folder: dist for folder in _folders(path) if (dist := _read(folder, package))}
    return list(found.values())


def _folders(path: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for entry in path:
        try:
            # pip renames what it removes to ~name, and leaves it there if it is stopped
            names = (item for item in entry.iterdir() if not item.name.startswith("~"))
            found = sorted(item for item in names if item.name.endswith(".dist-info"))
        except OSError:  # no folder, or not ours to read: nothing is imported from it either
            continue
        if (real := entry.resolve()) not in seen:
            seen.add(real)
            yield from found


def _read(folder: Path, package: str) -> Distribution | None:
    record = folder / "RECORD"
    named = normalized(folder.name.split("-")[0])
    try:
        rows = record.read_bytes() if record.is_file() else b""
    except PermissionError:
        if named != package:
            return None
        raise
    owns = b"\n" + package.encode() + b"/__init__.py," in b"\n" + rows
    if not owns and named != package and not named.startswith(package + "-"):
        return None
    name, version = _metadata(folder)
    if name is None or version is None:  # the remains of an uninstalled distribution
        return None
    origin, checkout = _direct_url(folder)
    if not owns and named != package and checkout is None:  # vllm-flash-attn and the like
        return None
    kept = record if record.is_file() else None
    return Distribution(folder, folder.parent, name, version, owns, kept, origin, checkout)


def _metadata(folder: Path) -> tuple[str | None, str | None]:
    try:
        with (folder / "METADATA").open("rb") as file:
            headers = BytesHeaderParser().parse(file)
    except OSError:
        return None, None
    return headers["Name"], headers["Version"]


def _direct_url(folder: Path) -> tuple[str | None, str | None]:
    """Read direct_url.json (PEP 610) as (words, folder of an editable install)."""
    try:
        answer = json.loads((folder / "direct_url.json").read_bytes())
        url = str(answer["url"])
        editable = bool((answer.get("dir_info") or {}).get("editable"))
        checkout = unquote(urlsplit(url).path) if editable else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, None
    if "vcs_info" in answer:
        return f"install from {url}", None
    return (f"editable install of {url}", checkout) if editable else (None, None)

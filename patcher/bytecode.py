"""Where an interpreter may keep bytecode of a source file, for every version and optimisation level.

A ``.pyc`` is trusted when it names the source's whole-second mtime and size, and one with an unchecked hash is
trusted always (PEP 552), so bytecode of a replaced source is deleted and not left to be found stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def files(sources: Iterable[Path], prefix: Path | None) -> list[Path]:
    """List the existing ``.pyc`` files of ``sources``: all tags, ``-O`` and ``-OO``, and below ``prefix``.

    Args:
        sources: source files, as the interpreter spells their paths.
        prefix: PYTHONPYCACHEPREFIX of the target, or None.
    """
    return [pyc for source in sources for folder in _folders(source, prefix) for pyc in _of(source, folder)]


def _folders(source: Path, prefix: Path | None) -> Iterator[Path]:
    yield source.parent / "__pycache__"
    if prefix is not None:
        # importlib mirrors the absolute path as it is spelled; two spellings of one folder are two caches.
        for parent in sorted({source.parent.absolute(), source.parent.resolve()}):
            yield prefix.joinpath(*parent.parts[1:])


def _of(source: Path, folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    names = sorted(item.name for item in folder.iterdir())
    return [folder / name for name in names if name.startswith(source.stem + ".") and name.endswith(".pyc")]

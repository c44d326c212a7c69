"""Which modules there are, and their parsed source, each read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patcher.facts_module import parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from patcher.facts_module import SourceModule

_NATIVE = (".so", ".pyd")


class ModuleFiles:
    """The modules under some package folders.

    Args:
        roots: package name -> its folder.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self.roots = dict(roots)
        self._modules: dict[str, SourceModule | None] = {}

    def covers(self, dotted: str) -> bool:
        """Is it a name of one of the packages?"""
        return dotted.partition(".")[0] in self.roots

    def module(self, dotted: str) -> SourceModule | None:
        """The parsed module; None if there is no Python file of that name.

        Raises:
            TargetError: the file can't be read or parsed.
        """
        if dotted not in self._modules:
            path = self._path(dotted)
            self._modules[dotted] = parse(dotted, path, self._relative(dotted, path)) if path else None
        return self._modules[dotted]

    def exists(self, dotted: str) -> bool:
        """Is there such a module: a Python file, a folder or a compiled file?"""
        if self._path(dotted) is not None:
            return True
        if not self.covers(dotted):
            return False
        return self._folder(dotted).is_dir() or self.is_native(dotted)

    def is_native(self, dotted: str) -> bool:
        """Is it a compiled module, or a package whose ``__init__`` is compiled?"""
        folder = self._folder(dotted)
        files = (*folder.parent.glob(f"{folder.name}.*"), *folder.glob("__init__.*"))
        return any(path.suffix in _NATIVE for path in files)

    def may_export(self, dotted: str, name: str) -> bool:
        """Could the module bind the name? A look at the text, before the cost of parsing it."""
        path = self._path(dotted)
        if path is None or self._modules.get(dotted) is not None:
            return path is not None
        text = path.read_bytes()
        return name.encode() in text or b"import *" in text

    def _folder(self, dotted: str) -> Path:
        root, *rest = dotted.split(".")
        return self.roots[root].joinpath(*rest)

    def _path(self, dotted: str) -> Path | None:
        if not self.covers(dotted):
            return None
        folder = self._folder(dotted)
        candidates = [folder / "__init__.py", *([folder.parent / f"{folder.name}.py"] if "." in dotted else [])]
        return next((path for path in candidates if path.is_file()), None)

    def _relative(self, dotted: str, path: Path) -> str:
        """The path from the folder that holds the package on."""
        root = dotted.partition(".")[0]
        return f"{root}/{path.relative_to(self.roots[root]).as_posix()}"

"""One source file as a table of the names that it binds. Parsed with ``ast``, never run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import decode_source
from typing import TYPE_CHECKING, Literal

from patcher.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BindingKind = Literal["function", "class", "import", "attribute"]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Binding:
    """One statement that binds a name.

    Args:
        kind: what the statement is.
        node: the statement.
        target: of an import, the module and the name in it (None: the module itself).
        value: of an assignment of one expression to one name, the expression.
        annotation: of an annotated assignment, the annotation.
        conditional: it stands in an ``if``, ``try``, loop, or is an overload, so another one may hold.
        typing_only: it stands under ``if TYPE_CHECKING``, so it is not there at run time.
    """

    kind: BindingKind
    node: ast.stmt
    target: tuple[str, str | None] | None = None
    value: ast.expr | None = None
    annotation: ast.expr | None = None
    conditional: bool = False
    typing_only: bool = False


@dataclass
class Scope:
    """The names that a module's or a class's body binds, and the modules that it star-imports."""

    names: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[tuple[str, bool]] = field(default_factory=list)
    replaced: bool = False
    """The body puts another object in ``sys.modules[__name__]``."""

    def candidates(self, name: str, *, typing_only: bool) -> list[Binding]:
        """The bindings of a name, most telling first: the last unconditional one, then the conditional in order."""
        bindings = [b for b in self.names.get(name, ()) if b.typing_only == typing_only]
        certain = [b for b in bindings if not b.conditional]
        maybe = [b for b in bindings if b.conditional]
        if certain and certain[-1].kind == "attribute" and certain[-1].node.lineno < _first_line(maybe):
            return [*maybe, certain[-1]]
        return [*certain[-1:], *maybe]


@dataclass(frozen=True)
class SourceModule:
    """A parsed file.

    Args:
        name: dotted.
        path: where it lies.
        file: the same from the package's parent folder on, with slashes.
        text: its source, with ``\\n`` at the end of every line.
        tree: its syntax tree.
    """

    name: str
    path: Path
    file: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def scope(self) -> Scope:
        """Its names."""
        return collect(self.tree.body, self.package)

    @cached_property
    def exported(self) -> frozenset[str] | None:
        """``__all__`` as far as it is written out; None where it is not."""
        found = [name for statement in self.tree.body for name in _all_names(statement)]
        return frozenset(found) or None

    @cached_property
    def writes_globals(self) -> bool:
        """Does its top level call ``globals()``, and so perhaps make names that no statement shows?"""
        if "globals()" not in self.text:
            return False
        top = [s for s in self.tree.body if not isinstance(s, FunctionNode | ast.ClassDef)]
        return any(ast.unparse(n) == "globals()" for s in top for n in ast.walk(s) if isinstance(n, ast.Call))

    @cached_property
    def globals_set_in_functions(self) -> dict[str, int]:
        """Names declared ``global`` in a function, with the line: they may exist once it has run."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Global))
        return {name: node.lineno for node in nodes for name in node.names}


def parse(name: str, path: Path, file: str) -> SourceModule:
    """Read and parse one file.

    Raises:
        TargetError: it can't be read or parsed; names the file and the line.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise TargetError(f"a source file of {name} can't be read: {error.strerror}", where=str(path)) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source, filename=str(path))
        return SourceModule(name, path, file, decode_source(source), tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        raise TargetError(f"a source file of {name} does not parse: {message}", where=f"{path}:{line}") from error


def collect(body: Iterable[ast.stmt], package: str) -> Scope:
    """The names that the statements bind, in the order of the source."""
    scope = Scope()
    _Collector(scope, package).block(body, conditional=False, typing_only=False)
    return scope


def relative(package: str, level: int, module: str | None) -> str:
    """The absolute name that ``from ..module import`` means in a package."""
    if level == 0:
        return module or ""
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, *([module] if module else [])])


def is_overload(node: FunctionNode) -> bool:
    """Is it an ``@overload``, which never runs?"""
    return any(last_name(decorator) == "overload" for decorator in node.decorator_list)


def last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c`` and of ``a.b.c(...)``; empty where there is no name."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class _Collector:
    def __init__(self, scope: Scope, package: str) -> None:
        self.scope = scope
        self.package = package

    def block(self, body: Iterable[ast.stmt], *, conditional: bool, typing_only: bool) -> None:
        for statement in body:
            for name, binding in self.bindings(statement, conditional=conditional, typing_only=typing_only):
                self.scope.names.setdefault(name, []).append(binding)
            typing_branch = isinstance(statement, ast.If) and last_name(statement.test) == "TYPE_CHECKING"
            for index, inner in enumerate(_blocks(statement)):
                certain = isinstance(statement, ast.With) or typing_branch
                only = typing_only or (typing_branch and index == 0)
                self.block(inner, conditional=conditional or not certain, typing_only=only)

    def bindings(self, node: ast.stmt, *, conditional: bool, typing_only: bool) -> Iterator[tuple[str, Binding]]:
        make = partial(Binding, node=node, conditional=conditional, typing_only=typing_only)
        if isinstance(node, FunctionNode):
            yield node.name, replace(make(kind="function"), conditional=conditional or is_overload(node))
        elif isinstance(node, ast.ClassDef):
            yield node.name, make(kind="class")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or whole, make(kind="import", target=(whole, None))
        elif isinstance(node, ast.ImportFrom):
            yield from self._from_import(node, make)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, make(kind="attribute", value=node.value, annotation=node.annotation)
        elif isinstance(node, ast.Assign):
            self.scope.replaced |= any(ast.unparse(t) == "sys.modules[__name__]" for t in node.targets)
            for target in node.targets:
                value = node.value if isinstance(target, ast.Name) else None
                yield from ((name, make(kind="attribute", value=value)) for name in _target_names(target))
        else:
            yield from ((name, make(kind="attribute")) for t in _loose_targets(node) for name in _target_names(t))

    def _from_import(self, node: ast.ImportFrom, make: partial[Binding]) -> Iterator[tuple[str, Binding]]:
        module = relative(self.package, node.level, node.module)
        for alias in node.names:
            if alias.name == "*":
                self.scope.stars.append((module, make.keywords["typing_only"]))
            else:
                yield alias.asname or alias.name, make(kind="import", target=(module, alias.name))


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(node, ast.If | ast.For | ast.While):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.With):
        yield node.body
    elif isinstance(node, ast.Try):
        yield from (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody)


def _loose_targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.For):
        return [node.target]
    if isinstance(node, ast.With):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _target_names(element)
    elif isinstance(target, ast.Starred):
        yield from _target_names(target.value)


def _all_names(node: ast.stmt) -> Iterator[str]:
    """The string constants of ``__all__ = [...]``, ``__all__ += [...]`` and ``__all__.extend([...])``."""
    value: ast.expr | None = None
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = node.value if any(last_name(t) == "__all__" for t in targets) else None
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and last_name(function.value) == "__all__":
            value = node.value
    if value is not None:
        constants = (n.value for n in ast.walk(value) if isinstance(n, ast.Constant))
        yield from (constant for constant in constants if isinstance(constant, str))


def _first_line(bindings: list[Binding]) -> int:
    return min((b.node.lineno for b in bindings), default=0)

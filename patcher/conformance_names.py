"""The values and the names of a planned file."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from patcher.facts_module import FunctionNode, last_name, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

ScopeNode = ast.Module | FunctionNode | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Symbol:
    """A module, class or function of the packages, reached by this dotted name."""

    dotted: str


@dataclass(frozen=True)
class BoundMethod:
    """A method reached through an instance, or a class method through its class."""

    dotted: str


@dataclass(frozen=True)
class Instance:
    """An object of this class of the packages."""

    dotted: str


@dataclass(frozen=True)
class Local:
    """A class of the file itself, or an instance of it; ``home`` is the scope that the class stands in."""

    node: ast.ClassDef
    instance: bool
    home: Names = field(compare=False)


Value = Symbol | BoundMethod | Instance | Local


@dataclass(frozen=True)
class Bound:
    """One binding of a name: to an expression, an annotation, an import, a class of the file, or unknown."""

    value: ast.expr | None = None
    annotation: ast.expr | None = None
    imported: str | None = None
    local: Local | None = None


class Names:
    """The names bound in one scope of the file, and the scope around it."""

    def __init__(self, node: ScopeNode, parent: Names | None, package: str) -> None:
        self.node = node
        self.parent = parent
        self.bound: dict[str, list[Bound]] = {}
        self.package = package
        self._declare()

    def _declare(self) -> None:
        if isinstance(self.node, FunctionNode | ast.Lambda):
            args = self.node.args
            named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
            for index, arg in enumerate(named):
                itself = self._itself() if index == 0 else None
                self._add(arg.arg, Bound(local=itself) if itself else Bound(annotation=arg.annotation))
            for starred in (args.vararg, args.kwarg):
                if starred:
                    self._add(starred.arg, Bound())
        for node in _own_nodes(self.node):
            for name, bound in self._bindings(node):
                self._add(name, bound)

    def _itself(self) -> Local | None:
        """What ``self`` is in a method."""
        around = self.parent
        if around is None or around.parent is None or not isinstance(around.node, ast.ClassDef):
            return None
        if isinstance(self.node, FunctionNode) and _is_static(self.node):
            return None
        return Local(around.node, instance=True, home=around.parent)

    def _add(self, name: str, bound: Bound) -> None:
        self.bound.setdefault(name, []).append(bound)

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, Bound]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or whole, Bound(imported=whole)
        elif isinstance(node, ast.ImportFrom):
            module = relative(self.package, node.level, node.module)
            yield from ((a.asname or a.name, Bound(imported=f"{module}.{a.name}")) for a in node.names)
        elif isinstance(node, ast.ClassDef):
            yield node.name, Bound(local=Local(node, instance=False, home=self))
        elif isinstance(node, FunctionNode):
            yield node.name, Bound()
        elif isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
            plain = [t.id for t in targets if isinstance(t, ast.Name)]
            yield from ((name, Bound(value=node.value, annotation=annotation)) for name in plain)
            inner = [n for t in targets if not isinstance(t, ast.Name) for n in _stored(t)]
            yield from ((name, Bound()) for name in inner)
        else:
            yield from ((name, Bound()) for name in _unclear(node))


def _own_nodes(scope: ScopeNode) -> Iterator[ast.AST]:
    """The nodes of a scope in source order, without those of the scopes in it."""
    body: list[ast.AST] = [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)
    todo = body[::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            todo.extend(reversed(list(ast.iter_child_nodes(node))))


def _unclear(node: ast.AST) -> list[str]:
    """The names that a loop, a ``with``, an ``except``, a ``match`` or a ``del`` binds or takes away."""
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.AugAssign):
        return _stored(node.target)
    if isinstance(node, ast.withitem):
        return _stored(node.optional_vars) if node.optional_vars is not None else []
    return [t.id for t in node.targets if isinstance(t, ast.Name)] if isinstance(node, ast.Delete) else []


def _stored(target: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _is_static(node: FunctionNode) -> bool:
    return any(last_name(d) in ("staticmethod", "classmethod") for d in node.decorator_list)

"""What a name of the source leads to."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from patcher.facts_module import Binding, FunctionNode, Scope, SourceModule, collect, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patcher.facts_base import Kind


@dataclass(frozen=True)
class Entity:
    """What a name leads to.

    Args:
        kind: as in Definition, or ``external`` for a name of a package that is not covered.
        dotted: where it is defined.
        module: the module that defines it; None for an external name or a module without Python source.
        node: the statement that defines it.
        binding: of an attribute, how it is bound.
        owner: of a class's member, the class that defines it.
    """

    kind: Kind | str
    dotted: str
    module: SourceModule | None = None
    node: ast.stmt | None = None
    binding: Binding | None = None
    owner: Entity | None = None

    @cached_property
    def scope(self) -> Scope:
        """Of a class, the names that its body binds."""
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        return collect(body, self.module.package if self.module else "")

    @cached_property
    def instance_attributes(self) -> dict[str, tuple[Binding, FunctionNode]]:
        """Of a class, what its methods assign to ``self.x``, with the method."""
        return dict(_instance_attributes(self))


def method_kind(node: FunctionNode) -> Kind:
    """What a function in a class's body is to those who use the class."""
    decorators = {last_name(d) for d in node.decorator_list}
    if decorators & {"property", "cached_property", "setter", "getter"}:
        return "attribute"
    if "staticmethod" in decorators:
        return "staticmethod"
    if "classmethod" in decorators or node.name in ("__init_subclass__", "__class_getitem__", "__new__"):
        return "classmethod"
    return "method"


def _instance_attributes(cls: Entity) -> Iterator[tuple[str, tuple[Binding, FunctionNode]]]:
    methods = [n for n in cls.node.body if isinstance(n, FunctionNode)] if isinstance(cls.node, ast.ClassDef) else []
    # The first assignment of the first method counts: that is __init__ in most classes, and dict() keeps the last.
    for method in reversed(methods):
        self_name = method.args.args[0].arg if method.args.args else ""
        for node in reversed(list(ast.walk(method))):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                yield from ((name, (binding, method)) for name, binding in _set_on(self_name, node))


def _set_on(self_name: str, node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, Binding]]:
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for part in ast.walk(target):
            if (
                isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and ast.unparse(part.value) == self_name
            ):
                value = node.value if part is target else None
                yield part.attr, Binding("attribute", node, value=value, annotation=annotation)

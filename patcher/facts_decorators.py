"""Does a decorator leave the signature of what it decorates as it is?"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from patcher.facts_module import FunctionNode, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def assigns_attributes(node: FunctionNode) -> bool:
    return any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(node))


def _own_returns(node: FunctionNode) -> list[ast.Return]:
    found: list[ast.Return] = []
    todo: list[ast.AST] = list(node.body)
    while todo:
        item = todo.pop()
        if isinstance(item, ast.Return):
            found.append(item)
        if not isinstance(item, FunctionNode | ast.ClassDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(item))
    return found


def returned_functions(node: FunctionNode) -> Iterator[FunctionNode]:
    returned = {last_name(r.value) for r in _own_returns(node) if r.value is not None}
    yield from (n for n in ast.walk(node) if isinstance(n, FunctionNode) and n is not node and n.name in returned)


def keeps_signature(node: FunctionNode) -> bool:
    """Does a decorator give back what it got, or a function that ``wraps`` it?"""
    if any(last_name(d) == "wraps" for d in node.decorator_list):
        return True
    first = node.args.args[0].arg if node.args.args else None
    inner = {n.name: n for n in returned_functions(node)}
    returns = _own_returns(node)
    return bool(returns) and all(
        isinstance(r.value, ast.Name)
        and (r.value.id == first or (r.value.id in inner and keeps_signature(inner[r.value.id])))
        for r in returns
    )

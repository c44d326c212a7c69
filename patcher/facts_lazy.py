"""Names that a module makes on demand: PEP 562's ``__getattr__`` and the tables that it reads."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patcher.facts_module import SourceModule


def table_entries(module: SourceModule, name: str) -> Iterator[tuple[ast.Constant, ast.expr | None, str | None]]:
    """Where a lazy module's tables name ``name``: the constant, the value at it, and the key that lists it."""
    for statement in module.tree.body:
        for table in _tables(statement):
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield key, value, None
                elif isinstance(key, ast.Constant) and isinstance(value, ast.List | ast.Tuple | ast.Set):
                    yield from ((c, None, str(key.value)) for c in _constants(value) if c.value == name)
    for binding in module.scope.names.get("__getattr__", ()):
        constants = list(_constants(binding.node))
        yield from ((c, None, None) for c in constants if c.value == name)
        if (
            module.exported
            and name in module.exported
            and "__all__" in {n.id for n in ast.walk(binding.node) if isinstance(n, ast.Name)}
        ):
            yield ast.Constant(name, lineno=binding.node.lineno), None, None


def _tables(statement: ast.stmt) -> Iterator[ast.Dict]:
    if isinstance(statement, ast.If | ast.Try):
        for inner in [*statement.body, *statement.orelse]:
            yield from _tables(inner)
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        yield from (node for node in ast.walk(statement.value) if isinstance(node, ast.Dict))


def table_target(value: ast.expr | None, name: str) -> tuple[str | None, str]:
    """The module and the attribute that a table's value names: ``"mod:attr"``, ``"mod"`` or ``("mod", "attr")``."""
    texts = [str(c.value) for c in _constants(value) if isinstance(c.value, str)] if value is not None else []
    if isinstance(value, ast.Constant) and len(texts) == 1:
        source, _, attribute = texts[0].partition(":")
        return source, attribute or name
    if isinstance(value, ast.Tuple) and len(texts) == 2:
        return texts[0], texts[1]
    return None, name


def _constants(node: ast.AST) -> Iterator[ast.Constant]:
    yield from (n for n in ast.walk(node) if isinstance(n, ast.Constant))

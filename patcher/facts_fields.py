"""The constructor parameters that a class makes of its annotations: dataclasses, pydantic, msgspec, NamedTuple."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from patcher.facts_module import last_name
from patcher.signature import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patcher.facts_entity import Entity

NOT_IN_INIT = "<init=False>"


def class_fields(cls: Entity, inherited: dict[str, Parameter]) -> Iterator[tuple[str, Parameter]]:
    if not isinstance(cls.node, ast.ClassDef):
        return
    by_name = any(flag(d, "kw_only", default=False) for d in cls.node.decorator_list)
    by_name |= any(k.arg == "kw_only" and ast.unparse(k.value) == "True" for k in cls.node.keywords)
    for node in cls.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            head = _annotation_head(node.annotation)
            by_name |= head == "KW_ONLY"
            if head not in ("KW_ONLY", "ClassVar"):
                yield node.target.id, _field(node.target.id, node.value, by_name=by_name)
        elif isinstance(node, ast.Assign):
            # A plain assignment gives an inherited field a new default.
            names = [t.id for t in node.targets if isinstance(t, ast.Name) and t.id in inherited]
            yield from ((n, replace(inherited[n], default=ast.unparse(node.value))) for n in names)


def _field(name: str, value: ast.expr | None, *, by_name: bool) -> Parameter:
    default = None if value is None else ast.unparse(value)
    if isinstance(value, ast.Call) and last_name(value) in ("field", "Field"):
        keywords = {k.arg: k.value for k in value.keywords}
        by_name = _true(keywords.get("kw_only"), default=by_name)
        default = _field_default(value, keywords)
        if not _true(keywords.get("init"), default=True):
            default = NOT_IN_INIT
    return Parameter(name, "keyword-only" if by_name else "ordinary", default)


def _field_default(call: ast.Call, keywords: dict[str | None, ast.expr]) -> str | None:
    factory = keywords.get("default_factory")
    if isinstance(factory, ast.Lambda):
        return ast.unparse(factory.body)
    if factory is not None:
        return f"{ast.unparse(factory)}()"
    default = keywords.get("default", call.args[0] if call.args else None)
    if default is None or (isinstance(default, ast.Constant) and default.value is ...):
        return None
    return ast.unparse(default)


def has_alias(cls: Entity) -> bool:
    body = cls.node.body if isinstance(cls.node, ast.ClassDef) else []
    calls = [n.value for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.value, ast.Call)]
    return any(k.arg in ("alias", "validation_alias") for call in calls for k in call.keywords)


def _annotation_head(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.partition("[")[0].rpartition(".")[2]
    return last_name(node.value if isinstance(node, ast.Subscript) else node)


def flag(decorator: ast.expr, name: str, *, default: bool) -> bool:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return _true(next((k.value for k in keywords if k.arg == name), None), default=default)


def _true(node: ast.expr | None, *, default: bool) -> bool:
    return default if node is None else ast.unparse(node) == "True"

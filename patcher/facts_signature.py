"""Signatures of functions, methods and classes, read from their statements."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from patcher.facts_decorators import assigns_attributes, keeps_signature, returned_functions
from patcher.facts_fields import NOT_IN_INIT, class_fields, flag, has_alias
from patcher.facts_module import FunctionNode, last_name
from patcher.signature import Parameter, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patcher.facts_base import Closure
    from patcher.facts_entity import Entity
    from patcher.facts_module import SourceModule
    from patcher.facts_resolve import Resolver

UNKNOWN = Signature((), open=True)

# Decorators that leave the parameters as they are, by their last name.
_TRANSPARENT = frozenset(
    [
        *("staticmethod", "classmethod", "abstractmethod", "override", "final", "overload", "deprecated", "wraps"),
        *("cache", "lru_cache", "contextmanager", "asynccontextmanager", "no_grad", "inference_mode"),
        *("runtime_checkable", "unique", "total_ordering", "dataclass_transform"),
        *("validator", "field_validator", "model_validator", "root_validator"),
    ]
)
# Bases from outside that add nothing to the constructor and hide no members.
_TYPING = [f"{module}.{name}" for module in ("typing", "typing_extensions") for name in ("Generic", "Protocol")]
_PLAIN_BASES = frozenset(("builtins.object", "abc.ABC", *_TYPING))
_ENUM_BASES = frozenset(f"enum.{name}" for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"))
_TUPLE_BASES = frozenset(("typing.NamedTuple", "typing_extensions.NamedTuple"))
_STRUCT = "msgspec.Struct"
_PLAIN_METACLASSES = ("ABCMeta", "EnumMeta", "type")
_ABSTRACT_BASES = frozenset(("abc.ABC", "typing.Protocol", "typing_extensions.Protocol"))
_DATACLASSES = ("dataclasses.dataclass", "pydantic.dataclasses.dataclass")


class Signatures:
    """Reads signatures and openness with the help of a resolver."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver

    def of(self, entity: Entity) -> Signature | None:
        """What a call of the entity takes; None where it is nothing that is called by a signature of its own."""
        if isinstance(entity.node, FunctionNode) and entity.kind != "attribute":
            skip_first = entity.owner is not None and entity.kind != "staticmethod"
            return self._function(entity.node, entity.module, skip_first=skip_first)
        if entity.kind == "class":
            return self._class(entity)
        return None

    def closure(self, entity: Entity) -> Closure:
        """See Facts.closure."""
        if entity.kind == "module":
            return self._module_closure(entity)
        if entity.kind != "class":
            return "open"
        line = self.resolver.mro(entity)
        known = _PLAIN_BASES | _ENUM_BASES | {_STRUCT}
        if any(base.kind != "class" and base.dotted not in known for base in line):
            return "open"
        if any(name in base.scope.names for base in line for name in ("__getattr__", "__getattribute__")):
            return "open"
        return "abstract" if self._abstract(entity) else "closed"

    def _module_closure(self, entity: Entity) -> Closure:
        module = entity.module
        if module is None:  # a folder alone, a namespace package, has its modules and nothing else
            return "open" if self.resolver.files.is_native(entity.dotted) else "closed"
        outside = any(self.resolver.files.module(star) is None for star, _ in module.scope.stars)
        if outside or module.writes_globals:
            return "open"
        return "lazy" if self.resolver.is_lazy(module) else "closed"

    def _abstract(self, cls: Entity) -> bool:
        if not isinstance(cls.node, ast.ClassDef):
            return False
        direct = {base.dotted for base in self.resolver.bases(cls)}
        enum = any(base.dotted in _ENUM_BASES for base in self.resolver.mro(cls))
        methods = [n for n in cls.node.body if isinstance(n, FunctionNode)]
        return enum or bool(direct & _ABSTRACT_BASES) or any(_is_abstract(method) for method in methods)

    # Functions

    def _function(self, node: FunctionNode, module: SourceModule | None, *, skip_first: bool) -> Signature:
        parameters = list(_parameters(node.args))
        if skip_first and parameters and parameters[0].kind in ("positional-only", "ordinary"):
            del parameters[0]
        hidden = any(not self._transparent(d, module, for_class=False) for d in node.decorator_list)
        return Signature(tuple(parameters), open=hidden)

    def _transparent(self, decorator: ast.expr, module: SourceModule | None, *, for_class: bool) -> bool:
        if last_name(decorator) in _TRANSPARENT:
            return True
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        entity = self.resolver.evaluate(target, module) if module else None
        if entity is None or not isinstance(entity.node, FunctionNode):
            return False
        if for_class and assigns_attributes(entity.node):
            return False
        if isinstance(decorator, ast.Call):
            inner = list(returned_functions(entity.node))
            return bool(inner) and all(keeps_signature(n) for n in inner)
        return keeps_signature(entity.node)

    # Classes

    def _class(self, cls: Entity) -> Signature:
        if not isinstance(cls.node, ast.ClassDef):
            return UNKNOWN
        for entity in self.resolver.mro(cls):
            found = self._constructor(entity)
            if found is not None:
                return found if self._plain_construction(cls) else replace(found, open=True)
        return Signature(()) if self._plain_construction(cls) else UNKNOWN

    def _plain_construction(self, cls: Entity) -> bool:
        """No metaclass or class decorator out of sight that may change how the class is called."""
        for entity in self.resolver.mro(cls):
            if not isinstance(entity.node, ast.ClassDef):
                continue
            metaclasses = [k.value for k in entity.node.keywords if k.arg == "metaclass"]
            if any(last_name(m) not in _PLAIN_METACLASSES for m in metaclasses):
                return False
            others = [d for d in entity.node.decorator_list if self._dataclass_call(d, entity.module) is None]
            if any(not self._transparent(d, entity.module, for_class=True) for d in others):
                return False
        return True

    def _constructor(self, entity: Entity) -> Signature | None:
        """The signature that this one class of the line gives its heirs; None if it leaves it to its bases."""
        if entity.kind != "class":
            return _external_constructor(entity)
        for name in ("__init__", "__new__"):
            own = entity.scope.candidates(name, typing_only=False)
            if own and isinstance(own[0].node, FunctionNode):
                return self._function(own[0].node, entity.module, skip_first=True)
            if own:
                return UNKNOWN
        style = self._style(entity)
        return self._fields_signature(entity, *style) if style else None

    def _style(self, entity: Entity) -> tuple[str, bool] | None:
        """How the class makes its constructor from annotations, and if unknown keywords vanish."""
        if not isinstance(entity.node, ast.ClassDef):
            return None
        for decorator in entity.node.decorator_list:
            style = self._dataclass_call(decorator, entity.module)
            if style is not None and flag(decorator, "init", default=True):
                return "dataclass", style == "drops"
        outside = {base.dotted for base in self.resolver.mro(entity) if base.kind != "class"}
        if _STRUCT in outside:
            return "struct", False
        direct = {base.dotted for base in self.resolver.bases(entity)}
        return ("tuple", False) if direct & _TUPLE_BASES else None

    def _dataclass_call(self, decorator: ast.expr, module: SourceModule | None) -> str | None:
        """``strict`` or ``drops`` (unknown keywords) for a decorator that makes a dataclass, else None."""
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        entity = self.resolver.evaluate(target, module) if module else None
        if entity is None:
            return None
        if entity.dotted in _DATACLASSES:
            drops = entity.dotted.startswith("pydantic") and not _forbids_extra(decorator)
            return "drops" if drops else "strict"
        return self._dataclass_maker(entity)

    def _dataclass_maker(self, entity: Entity) -> str | None:
        """vLLM's ``@config`` (vllm/config/utils.py, from 0.15): a function that calls a dataclass decorator."""
        if not isinstance(entity.node, FunctionNode) or entity.module is None:
            return None
        for call in ast.walk(entity.node):
            if isinstance(call, ast.Call) and last_name(call) == "dataclass":
                inner = self._dataclass_call(call, entity.module)
                if inner is not None:
                    return "strict" if _forbids_extra(entity.node) else inner
        return None

    def _fields_signature(self, cls: Entity, style: str, drops: bool) -> Signature:  # noqa: FBT001
        fields: dict[str, Parameter] = {}
        hidden = False
        for entity in reversed(self.resolver.mro(cls)):
            if entity.kind != "class":
                hidden |= entity.dotted not in _PLAIN_BASES | _TUPLE_BASES | {_STRUCT, "builtins.tuple"}
            elif entity.dotted == cls.dotted or self._style(entity):
                fields |= dict(class_fields(entity, fields))
                hidden |= has_alias(entity)
        ordered = [
            *(p for p in fields.values() if p.kind == "ordinary"),
            *(p for p in fields.values() if p.kind != "ordinary"),
        ]
        parameters = tuple(p for p in ordered if p.default != NOT_IN_INIT)
        return Signature(parameters, open=hidden, drops_unknown=drops and style == "dataclass")


def _external_constructor(entity: Entity) -> Signature | None:
    if entity.dotted in _ENUM_BASES:
        return Signature((Parameter("value"),))
    if entity.dotted in _PLAIN_BASES or entity.dotted == _STRUCT or entity.dotted in _TUPLE_BASES:
        return None
    return UNKNOWN


def _parameters(args: ast.arguments) -> Iterator[Parameter]:
    placed = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(placed) - len(args.defaults))
    for index, (arg, default) in enumerate(zip(placed, [*defaults, *args.defaults], strict=True)):
        kind = "positional-only" if index < len(args.posonlyargs) else "ordinary"
        yield Parameter(arg.arg, kind, _text(default))  # type: ignore[arg-type]
    if args.vararg:
        yield Parameter(args.vararg.arg, "var-positional")
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield Parameter(arg.arg, "keyword-only", _text(default))
    if args.kwarg:
        yield Parameter(args.kwarg.arg, "var-keyword")


def _text(default: ast.expr | None) -> str | None:
    return None if default is None else ast.unparse(default)


def _is_abstract(method: FunctionNode) -> bool:
    last = method.body[-1]
    raised = last_name(last.exc) if isinstance(last, ast.Raise) and last.exc is not None else ""
    return raised == "NotImplementedError" or any(last_name(d) == "abstractmethod" for d in method.decorator_list)


def _forbids_extra(node: ast.AST) -> bool:
    keywords = (k for k in ast.walk(node) if isinstance(k, ast.keyword) and k.arg == "extra")
    return any(isinstance(k.value, ast.Constant) and k.value.value == "forbid" for k in keywords)

"""Static knowledge of the installed vLLM, read from its source and never imported."""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING, cast

from patcher.facts_base import Closure, Definition, Facts, Kind
from patcher.facts_module import FunctionNode, last_name
from patcher.facts_recorded import RecordedFacts, Recorder, record
from patcher.facts_resolve import Resolver
from patcher.facts_signature import Signatures
from patcher.signature import Parameter, Signature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from patcher.facts_entity import Entity
    from patcher.facts_module import SourceModule

__all__ = [
    "Closure",
    "Definition",
    "Facts",
    "Parameter",
    "RecordedFacts",
    "Recorder",
    "Signature",
    "SourceFacts",
    "record",
]


class SourceFacts(Facts):
    """Answers from source files.

    Args:
        roots: package name -> its folder: ``{"vllm": Path(".../site-packages/vllm")}``. Only these are read, and of
            these only the modules that a question leads to.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._resolver = Resolver(roots)
        self._signatures = Signatures(self._resolver)

    @property
    def packages(self) -> frozenset[str]:
        """The names of the packages whose folders were given."""
        return frozenset(self._resolver.files.roots)

    def symbol(self, dotted: str) -> Definition | None:
        """See Facts.symbol."""
        entity = self._resolver.resolve(dotted)
        return None if entity is None else self._definition(dotted, entity)

    def _definition(self, dotted: str, entity: Entity) -> Definition:
        if entity.kind == "external":
            # Bound here, defined in a package that isn't covered: the best that is known is the importing module.
            parent = self._resolver.resolve(dotted.rpartition(".")[0])
            file = parent.module.file if parent and parent.module else dotted.partition(".")[0]
            return Definition("attribute", entity.dotted, file, 1)
        file = entity.module.file if entity.module else entity.dotted.replace(".", "/")
        line = entity.node.lineno if entity.node else 1
        return Definition(cast("Kind", entity.kind), entity.dotted, file, line)

    def closure(self, dotted: str) -> Closure:
        """See Facts.closure. A name that does not exist is ``open``."""
        entity = self._resolver.resolve(dotted)
        return "open" if entity is None else self._signatures.closure(entity)

    def type_of(self, dotted: str) -> str | None:
        """See Facts.type_of."""
        entity = self._resolver.resolve(dotted)
        if entity is None or entity.module is None:
            return None
        if isinstance(entity.node, FunctionNode):
            return self._returned(entity, entity.node)
        binding = entity.binding
        if binding is None:
            return None
        if binding.annotation is not None:
            return self._class_named(binding.annotation, entity.module)
        return self._assigned(entity, binding.value)

    def _returned(self, entity: Entity, node: FunctionNode) -> str | None:
        generators = ("contextmanager", "asynccontextmanager")
        if isinstance(node, ast.AsyncFunctionDef) or any(last_name(d) in generators for d in node.decorator_list):
            return None
        if node.returns is None or entity.module is None:
            return None
        if entity.owner is not None and last_name(node.returns) == "Self":
            return entity.owner.dotted
        return self._class_named(node.returns, entity.module)

    def _assigned(self, entity: Entity, value: ast.expr | None) -> str | None:
        """The class of ``self.x = Class(...)`` or of ``self.x = parameter``."""
        if value is None or entity.module is None:
            return None
        if isinstance(value, ast.Call):
            return self._class_named(value.func, entity.module)
        if entity.owner is None or not isinstance(value, ast.Name):
            return None
        name = entity.dotted.rpartition(".")[2]
        _, method = entity.owner.instance_attributes.get(name, (None, None))
        arguments = [*method.args.args, *method.args.kwonlyargs] if method else []
        annotation = next((a.annotation for a in arguments if a.arg == value.id), None)
        return self._class_named(annotation, entity.module) if annotation else None

    def _class_named(self, annotation: ast.expr, module: SourceModule) -> str | None:
        """The class of ``C``, ``"C"``, ``C | None`` and ``Optional[C]``; None for everything else."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                return self._class_named(ast.parse(annotation.value, mode="eval").body, module)
            except SyntaxError:
                return None
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            sides = [s for s in (annotation.left, annotation.right) if ast.unparse(s) != "None"]
            return self._class_named(sides[0], module) if len(sides) == 1 else None
        if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
            return self._class_named(annotation.slice, module)
        entity = self._resolver.evaluate(annotation, module, typing=True)
        return entity.dotted if entity is not None and entity.kind == "class" else None

    def _signature(self, dotted: str) -> Signature | None:
        entity = self._resolver.resolve(dotted)
        return None if entity is None else self._signatures.of(entity)

    def _shape(self, dotted: str, pattern: str) -> bool:
        from patcher.pattern import source_contains  # noqa: PLC0415 -- LibCST costs a second, few commands need it

        source = self._source(self._resolver.resolve(dotted))
        return source is not None and source_contains(source, pattern)

    def _source(self, entity: Entity | None) -> str | None:
        if entity is None or entity.module is None:
            return None
        if entity.kind == "module":
            return entity.module.text
        node = entity.node
        if not isinstance(node, ast.stmt) or node.end_lineno is None:
            return None
        decorators = [d.lineno for d in getattr(node, "decorator_list", [])]
        first = min([node.lineno, *decorators])
        # Not splitlines: it also splits at form feeds, which the parser does not count as lines.
        lines = entity.module.text.split("\n")
        segment = textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]) + "\n")
        # A string with text at the left margin stops dedent; any block may be indented instead.
        segment = segment.lstrip("\f")
        return f"if True:\n{segment}" if segment[0] in " \t" else segment

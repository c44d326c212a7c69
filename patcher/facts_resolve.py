"""Follows a dotted name through the source: re-exports, aliases, star imports, lazy tables, base classes."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from patcher.errors import TargetError
from patcher.facts_entity import Entity, method_kind
from patcher.facts_files import ModuleFiles
from patcher.facts_lazy import table_entries, table_target
from patcher.facts_module import FunctionNode, relative

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from patcher.facts_module import Binding, SourceModule


class Resolver:
    """Reads only the modules that a question leads to, each once."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self.files = ModuleFiles(roots)
        self._mros: dict[str, list[Entity]] = {}
        self._entities: dict[str, Entity | None] = {}
        self._active: set[tuple[str, str, bool]] = set()

    def resolve(self, dotted: str) -> Entity | None:
        """The entity of a dotted name; None if there is none.

        Raises:
            TargetError: its package is not covered, or a file on the way can't be read or parsed.
        """
        root = dotted.partition(".")[0]
        if root not in self.files.roots:
            raise TargetError(
                f"{dotted} belongs to no package whose source is known",
                expected=" or ".join(sorted(self.files.roots)),
                found=root,
            )
        if dotted not in self._entities:
            self._entities[dotted] = self._walk(dotted.split("."))
        return self._entities[dotted]

    def _walk(self, parts: list[str]) -> Entity | None:
        entity: Entity | None = self.module_entity(parts[0])
        for index, part in enumerate(parts[1:], start=1):
            if entity is None:
                return None
            last = index == len(parts) - 1
            submodule = self.module_entity(f"{entity.dotted}.{part}") if entity.kind == "module" else None
            # `import a.b.c` goes by files even where a package binds the same name to something else.
            entity = submodule if submodule and not last else self.member(entity, part)
        return entity

    def member(self, entity: Entity, name: str) -> Entity | None:
        """The attribute of a module or class; of anything else, None."""
        if entity.kind == "external":
            return Entity("external", f"{entity.dotted}.{name}")
        if entity.kind == "module":
            found = self.lookup(entity.module, name) if entity.module else None
            return found or self.module_entity(f"{entity.dotted}.{name}")
        return self.class_member(entity, name) if entity.kind == "class" else None

    def module_entity(self, dotted: str) -> Entity | None:
        """The module, also one without Python source; None if there is none of that name."""
        return Entity("module", dotted, self.files.module(dotted)) if self.files.exists(dotted) else None

    # Names in a module

    def lookup(self, module: SourceModule, name: str, *, typing: bool = False) -> Entity | None:
        """What a name means in a module at run time, or with ``typing`` also for a type checker."""
        key = (module.name, name, typing)
        if key in self._active:
            return None
        self._active.add(key)
        try:
            return self._lookup(module, name, typing=typing or self.is_lazy(module))
        finally:
            self._active.discard(key)

    def _lookup(self, module: SourceModule, name: str, *, typing: bool) -> Entity | None:
        found = self._bound(module, name, typing_only=False) or self._starred(module, name, typing_only=False)
        if found is None and self.is_lazy(module):
            found = self._from_table(module, name)
        if found is None and typing:
            found = self._bound(module, name, typing_only=True) or self._starred(module, name, typing_only=True)
        if found is None and name in module.globals_set_in_functions:
            line = module.globals_set_in_functions[name]
            found = Entity("attribute", f"{module.name}.{name}", module, ast.Pass(lineno=line))
        return found

    def is_lazy(self, module: SourceModule) -> bool:
        """Does the module make names on demand?"""
        return module.scope.replaced or "__getattr__" in module.scope.names

    def _bound(self, module: SourceModule, name: str, *, typing_only: bool) -> Entity | None:
        attribute: Entity | None = None
        for binding in module.scope.candidates(name, typing_only=typing_only):
            entity = self._follow(binding, module, name)
            if entity is not None and entity.kind != "attribute":
                return entity
            attribute = attribute or entity
        return attribute

    def _follow(self, binding: Binding, module: SourceModule, name: str) -> Entity | None:
        dotted = f"{module.name}.{name}"
        if binding.kind in ("function", "class"):
            return Entity(binding.kind, dotted, module, binding.node)
        if binding.target is not None:
            return self._imported(*binding.target)
        alias = None
        if binding.value is not None and name not in _names(binding.value):
            alias = self.evaluate(binding.value, module)
        if alias is not None and alias.kind not in ("external", "attribute"):
            return alias
        return Entity("attribute", dotted, module, binding.node, binding)

    def _imported(self, source: str, name: str | None) -> Entity | None:
        if not self.files.covers(source):
            return Entity("external", f"{source}.{name}" if name else source)
        module = self.module_entity(source)
        return module if module is None or name is None else self.member(module, name)

    def _starred(self, module: SourceModule, name: str, *, typing_only: bool) -> Entity | None:
        stars = [star for star, only in module.scope.stars if only == typing_only]
        # At run time the last one wins. A type checker's list can name hundreds of modules, the common ones first.
        for star in stars if typing_only else reversed(stars):
            source = self.files.module(star) if self.files.may_export(star, name) else None
            if source and (name in source.exported if source.exported else not name.startswith("_")):
                found = self.lookup(source, name, typing=typing_only)
                if found is not None:
                    return found
        return None

    def _from_table(self, module: SourceModule, name: str) -> Entity | None:
        for key, value, table_key in table_entries(module, name):
            source, attribute = table_target(value, name) if table_key is None else (table_key, name)
            if source is not None:
                level = len(source) - len(source.lstrip("."))
                where = relative(module.package, level, source.lstrip(".")) if level else source
                for candidate in (where, f"{module.package}.{where}"):
                    found = self._imported(candidate, attribute)
                    if found is not None and found.kind != "external":
                        return found
            return Entity("attribute", f"{module.name}.{name}", module, ast.Pass(lineno=key.lineno))
        return None

    # Expressions

    def evaluate(self, node: ast.expr, module: SourceModule, *, typing: bool = False) -> Entity | None:
        """What a dotted expression means in a module; None for anything that is no dotted name."""
        if isinstance(node, ast.Name):
            found = self.lookup(module, node.id, typing=typing)
            if found is None and hasattr(builtins, node.id):
                return Entity("external", f"builtins.{node.id}")
            return found
        if isinstance(node, ast.Attribute):
            base = self.evaluate(node.value, module, typing=typing)
            return self.member(base, node.attr) if base else None
        return None

    # Classes

    def mro(self, cls: Entity) -> list[Entity]:
        """The class and its bases in the order of look-up, external ones included."""
        if cls.dotted not in self._mros:
            self._mros[cls.dotted] = [cls]  # a class that inherits from itself ends here
            lines = [self.mro(base) if base.kind == "class" else [base] for base in self.bases(cls)]
            chain = [entity for line in lines for entity in line]
            # A base reached twice stands where it is reached last, as in C3 for every order that Python accepts.
            self._mros[cls.dotted] = [
                cls,
                *(e for i, e in enumerate(chain) if e.dotted not in _dotted(chain[i + 1 :])),
            ]
        return self._mros[cls.dotted]

    def bases(self, cls: Entity) -> Iterator[Entity]:
        """What the class statement names as bases, unknown ones as external."""
        if not isinstance(cls.node, ast.ClassDef) or cls.module is None:
            return
        for base in cls.node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            yield self.evaluate(expression, cls.module) or Entity("external", f"?.{ast.unparse(base)}")

    def class_member(self, cls: Entity, name: str) -> Entity | None:
        """The attribute or method, own or inherited, or set on ``self`` in a method."""
        line = [entity for entity in self.mro(cls) if entity.kind == "class"]
        for owner in line:
            for binding in [b for only in (False, True) for b in owner.scope.candidates(name, typing_only=only)]:
                return self._member_entity(owner, name, binding)
        for owner in line:
            if name in owner.instance_attributes:
                binding, _ = owner.instance_attributes[name]
                return Entity("attribute", f"{owner.dotted}.{name}", owner.module, binding.node, binding, owner)
        return None

    def _member_entity(self, owner: Entity, name: str, binding: Binding) -> Entity | None:
        dotted = f"{owner.dotted}.{name}"
        if binding.target is not None:
            return self._imported(*binding.target)
        if isinstance(binding.value, ast.Name) and binding.value.id in owner.scope.names and binding.value.id != name:
            return self.class_member(owner, binding.value.id)
        kind = method_kind(binding.node) if isinstance(binding.node, FunctionNode) else binding.kind
        return Entity(kind, dotted, owner.module, binding.node, binding, owner)


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _dotted(entities: list[Entity]) -> set[str]:
    return {entity.dotted for entity in entities}

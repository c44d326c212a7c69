"""What the expressions of a planned file stand for, as far as the file makes it evident.

Flow is not followed. A name counts as known if all that is ever bound to it in its scope has the same value.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from patcher.conformance_names import Bound, BoundMethod, Instance, Local, Names, Symbol, Value
from patcher.facts_module import FunctionNode, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patcher.facts_base import Facts


# The value, the annotation and the scope of an assignment to an attribute.
Assigned = tuple[ast.expr | None, ast.expr | None, Names]


class Evaluator:
    """Values of expressions in one file, with the facts behind them."""

    def __init__(self, facts: Facts, own_modules: frozenset[str]) -> None:
        self._facts = facts
        self._own = own_modules
        self._active: set[tuple[int, str]] = set()
        self._classes: dict[int, tuple[Names, dict[str, list[Assigned]]]] = {}

    def covers(self, dotted: str) -> bool:
        """Is it a name of the packages, and not of the files under test themselves?"""
        module_or_name = (dotted, dotted.rpartition(".")[0])
        return dotted.partition(".")[0] in self._facts.packages and not self._own.intersection(module_or_name)

    def value(self, node: ast.expr | None, scope: Names) -> Value | None:
        """What the expression stands for; None if that is not evident."""
        if isinstance(node, ast.Name):
            return self._name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self.member(self.value(node.value, scope), node.attr)
        if isinstance(node, ast.Call):
            return self._result(node, scope)
        if isinstance(node, ast.NamedExpr):
            return self.value(node.value, scope)
        if isinstance(node, ast.IfExp):
            return _agreed([self.value(node.body, scope), self.value(node.orelse, scope)])
        return None

    def _name(self, name: str, scope: Names) -> Value | None:
        home: Names | None = scope
        while home is not None and (
            name not in home.bound or (home is not scope and isinstance(home.node, ast.ClassDef))
        ):
            home = home.parent
        if home is None or (id(home), name) in self._active:
            return None
        self._active.add((id(home), name))
        try:
            return self._bound(home.bound[name], home)
        finally:
            self._active.discard((id(home), name))

    def _bound(self, bindings: list[Bound], scope: Names) -> Value | None:
        imported = [b.imported for b in bindings if b.imported is not None]
        if imported:
            # The alternatives of a try/except: the first that is there is the one that is taken.
            judged = len(imported) == len(bindings) and all(self.covers(dotted) for dotted in imported)
            there = [dotted for dotted in imported if judged and self._facts.symbol(dotted) is not None]
            return self._of_symbol(there[0]) if there else None
        values = [self._one(b, scope) for b in bindings if not _is_none(b.value)]
        return _agreed(values)

    def _one(self, bound: Bound, scope: Names) -> Value | None:
        if bound.local is not None:
            return bound.local
        if bound.annotation is not None:
            return self.annotated(bound.annotation, scope)
        return self.value(bound.value, scope)

    def _of_symbol(self, dotted: str) -> Value | None:
        definition = self._facts.symbol(dotted)
        if definition is None:
            return None
        if definition.kind == "attribute":
            cls = self._facts.type_of(dotted)
            return Instance(cls) if cls and self.covers(cls) else None
        return Symbol(dotted)

    def annotated(self, node: ast.expr, scope: Names) -> Value | None:
        """The instance that an annotation promises: of ``C``, ``"C"``, ``C | None``, ``Optional[C]``."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.annotated(ast.parse(node.value, mode="eval").body, scope)
            except SyntaxError:
                return None
        if isinstance(node, ast.BinOp):
            sides = [s for s in (node.left, node.right) if not _is_none(s)]
            return self.annotated(sides[0], scope) if len(sides) == 1 else None
        if isinstance(node, ast.Subscript):
            return self.annotated(node.slice, scope) if last_name(node.value) == "Optional" else None
        return self._made(self.value(node, scope))

    def _made(self, cls: Value | None) -> Value | None:
        """An instance of the class, if it is one."""
        if isinstance(cls, Local) and not cls.instance:
            return replace(cls, instance=True)
        if isinstance(cls, Symbol):
            definition = self._facts.symbol(cls.dotted)
            return Instance(cls.dotted) if definition and definition.kind == "class" else None
        return None

    def _result(self, call: ast.Call, scope: Names) -> Value | None:
        if last_name(call.func) == "getattr" and len(call.args) == 2 and isinstance(call.args[1], ast.Constant):
            return self.member(self.value(call.args[0], scope), str(call.args[1].value))
        callee = self.value(call.func, scope)
        if isinstance(callee, BoundMethod) or (isinstance(callee, Symbol) and self._made(callee) is None):
            definition = self._facts.symbol(callee.dotted)
            cls = self._facts.type_of(callee.dotted) if definition and definition.kind != "module" else None
            return Instance(cls) if cls and self.covers(cls) else None
        if callee is None and isinstance(call.func, ast.Attribute):
            return self._own_result(self.value(call.func.value, scope), call.func.attr)
        return self._made(callee)

    def _own_result(self, base: Value | None, name: str) -> Value | None:
        """What a method of a class in the file returns, by its annotation."""
        if not isinstance(base, Local):
            return None
        for method in base.node.body:
            if isinstance(method, FunctionNode) and method.name == name and method.returns is not None:
                return self.annotated(method.returns, base.home)
        return None

    def member(self, base: Value | None, name: str) -> Value | None:
        """The value of an attribute; None if that is not evident or there is no such attribute."""
        if isinstance(base, Local):
            return self._own_attribute(base, name)
        if base is None or isinstance(base, BoundMethod):
            return None
        dotted = f"{base.dotted}.{name}"
        definition = self._facts.symbol(dotted)
        if definition is None or definition.kind in ("attribute", "module", "class", "function"):
            return self._of_symbol(dotted) if definition else None
        if definition.kind == "method" and isinstance(base, Symbol):
            return None  # through the class: the first argument is self
        return BoundMethod(dotted)

    def _own_attribute(self, base: Local, name: str) -> Value | None:
        key = (id(base.node), name)
        if key in self._active:
            return None
        self._active.add(key)
        try:
            found = list(self._assigned(base, name))
        finally:
            self._active.discard(key)
        return _agreed(found) if found else self._inherited(base, name)

    def _assigned(self, base: Local, name: str) -> Iterator[Value | None]:
        """What the methods of a class in the file assign to ``self.name``, and what its body binds to the name."""
        key = id(base.node)
        if key not in self._classes:
            inside = Names(base.node, base.home, base.home.package)
            self._classes[key] = inside, _assignments(base.node, inside)
        inside, assignments = self._classes[key]
        if name in inside.bound:
            yield self._name(name, inside)
        for value, annotation, names in assignments.get(name, ()):
            yield self.annotated(annotation, names) if annotation else self.value(value, names)

    def _inherited(self, base: Local, name: str) -> Value | None:
        for parent in base.node.bases:
            value = self.value(parent, base.home)
            if isinstance(value, Symbol) and value.dotted != name:
                return self.member(Instance(value.dotted) if base.instance else value, name)
        return None


def _assignments(cls: ast.ClassDef, inside: Names) -> dict[str, list[Assigned]]:
    """What the methods of a class assign to each attribute of ``self``."""
    found: dict[str, list[Assigned]] = {}
    for method in (n for n in cls.body if isinstance(n, FunctionNode) and n.args.args):
        names = Names(method, inside, inside.package)
        for name, value, annotation in _set_on(method.args.args[0].arg, method):
            found.setdefault(name, []).append((value, annotation, names))
    return found


def _set_on(first: str, method: FunctionNode) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """(attribute, value, annotation) of each ``self.x = value``; no value where it isn't that one expression."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or _is_none(node.value):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == first:
                    plain = None if isinstance(node, ast.AugAssign) or part is not target else node.value
                    yield part.attr, plain, getattr(node, "annotation", None)


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _agreed(values: list[Value | None]) -> Value | None:
    first = values[0] if values else None
    return first if all(value == first for value in values) else None

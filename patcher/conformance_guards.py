"""Code that asks first: ``hasattr``, ``find_spec``, and exceptions that are caught."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from patcher.facts_module import last_name

_PARENTS = {
    "ModuleNotFoundError": ("ModuleNotFoundError",),
    "ImportError": ("ImportError", "ModuleNotFoundError"),
    "Exception": ("ImportError", "AttributeError", "TypeError"),
    "BaseException": ("ImportError", "AttributeError", "TypeError"),
}


@dataclass(frozen=True)
class Guards:
    """What has been asked, and is caught, at one place of a file.

    Args:
        tested: pairs (expression, attribute) that ``hasattr`` was true for; ("", module) that ``find_spec`` found.
        caught: names of exceptions that a ``try`` around the place catches.
    """

    tested: frozenset[tuple[str, str]] = frozenset()
    caught: frozenset[str] = frozenset()

    def with_names(self, more: set[tuple[str, str]]) -> Guards:
        """These guards and more that were tested."""
        return replace(self, tested=self.tested | more)

    def with_caught(self, more: set[str]) -> Guards:
        """These guards and more exceptions that are caught."""
        return replace(self, caught=self.caught | more)

    def names(self, expression: str, attribute: str) -> bool:
        """Was it asked if the expression has the attribute?"""
        return (expression, attribute) in self.tested

    def names_module(self, dotted: str) -> bool:
        """Was it asked if the module, or the one that holds the name, can be found?"""
        return any(not expression and (dotted + ".").startswith(module + ".") for expression, module in self.tested)

    def catches(self, exception: str) -> bool:
        """Is the exception caught here?"""
        return exception in self.caught


def handled_by(handler: ast.ExceptHandler) -> set[str]:
    """The names of the exceptions that lead into the handler; a bare ``except`` takes all that matter here."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {last_name(kind) if kind is not None else "BaseException" for kind in kinds}
    return {caught for name in names for caught in _PARENTS.get(name, (name,))}


def caught_by(handler: ast.ExceptHandler) -> set[str]:
    """The same, but none where the handler raises again, or something else: the fault still ends the run."""
    raises = any(isinstance(node, ast.Raise) for statement in handler.body for node in ast.walk(statement))
    return set() if raises else handled_by(handler)


def tested(test: ast.expr, *, holds: bool) -> set[tuple[str, str]]:
    """The attributes and modules that are certain to be there if the test holds, or if it fails."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return tested(test.operand, holds=not holds)
    if isinstance(test, ast.BoolOp):
        certain = isinstance(test.op, ast.And) == holds
        parts = [tested(value, holds=holds) for value in test.values]
        return set().union(*parts) if certain else set.intersection(*parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.comparators[0]) == "None":
        negated = isinstance(test.ops[0], ast.IsNot)
        return tested(test.left, holds=holds == negated) if isinstance(test.ops[0], ast.Is | ast.IsNot) else set()
    return _asked(test) if holds else set()


def _asked(test: ast.expr) -> set[tuple[str, str]]:
    if not isinstance(test, ast.Call) or not test.args:
        return set()
    name = last_name(test.func)
    texts = [arg.value if isinstance(arg, ast.Constant) else None for arg in test.args]
    if name in ("hasattr", "getattr") and len(test.args) >= 2 and isinstance(texts[1], str):
        return {(ast.unparse(test.args[0]), texts[1])}
    if name == "find_spec" and isinstance(texts[0], str):
        return {("", texts[0])}
    return set()


def leaves(body: list[ast.stmt]) -> bool:
    """Does control never run past the end of the block?"""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)

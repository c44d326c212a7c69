"""Code patterns with metavariables, matched on LibCST trees.

``$NAME`` stands for one node, ``$$$NAME`` for any run of arguments, elements or statements; ``$_`` and ``$$$``
stand for what needs no name. Layout, comments, quotes and the order of keyword arguments do not matter.
A name that the rule declares (``names``) matches however the file spells it: by an alias, by its module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from patcher.errors import RuleError
from patcher.match import Captured, Matcher
from patcher.meaning import string_value
from patcher.source import SourceProblem
from patcher.syntax import Tree, parse
from patcher.template import one_name, parse_template

_STRINGS = (cst.SimpleString, cst.ConcatenatedString)


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern: one expression, or one or more statements in a row."""

    text: str
    expression: cst.BaseExpression | None
    statements: tuple[cst.CSTNode, ...]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """A place where a pattern matched.

    ``nodes`` is the matched expression alone, or the matched statements; ``captures`` holds what each
    metavariable stood for, and ``keywords`` the original argument of each keyword that the pattern names.
    """

    nodes: tuple[cst.CSTNode, ...]
    captures: Mapping[str, Captured]


@lru_cache(maxsize=2048)
def compile_pattern(text: str, names: tuple[str, ...] = ()) -> Pattern:
    """Parse a pattern; ``names`` are the dotted names that its plain names stand for."""
    body = tuple(parse_template(text).body)
    if not body:
        raise RuleError("a pattern is empty", hint="write the code to look for")
    by_last = {name.rpartition(".")[2]: name for name in names}
    expression = _only_expression(body)
    return Pattern(text, expression, body, by_last)


def _only_expression(body: Sequence[cst.CSTNode]) -> cst.BaseExpression | None:
    only = body[0] if len(body) == 1 else None
    if isinstance(only, cst.SimpleStatementLine) and len(only.body) == 1 and isinstance(only.body[0], cst.Expr):
        return only.body[0].value
    return None


def source_contains(source: str, pattern: str) -> bool:
    """Does a piece of source have a place of the pattern's shape? For probes.

    Raises:
        RuleError: the pattern or the source does not parse.
    """
    try:
        tree = Tree(parse(source))
    except SourceProblem as error:
        raise RuleError("the source that a probe asks about does not parse", found=str(error)) from error
    return bool(find(tree, compile_pattern(pattern)))


def find(tree: Tree, pattern: Pattern, scope: cst.CSTNode | None = None) -> list[Match]:
    """Every place under the scope (default: the module) where the pattern matches, in source order."""
    matcher = Matcher(pattern.names, tree.names)
    under = tree.module if scope is None else scope
    if pattern.expression is not None:
        return list(_find_expressions(tree, pattern.expression, under, matcher))
    return list(_find_statements(tree, pattern.statements, under, matcher))


def _find_expressions(tree: Tree, wanted: cst.BaseExpression, scope: cst.CSTNode, matcher: Matcher) -> Iterator[Match]:
    for node in tree.within(scope, _kinds(wanted, matcher)):
        if not (isinstance(node, cst.Name) and _is_label(tree, node)):
            bindings = matcher.match(wanted, node, {})
            if bindings is not None:
                yield Match((node,), bindings)


def _kinds(wanted: cst.BaseExpression, matcher: Matcher) -> tuple[type[cst.CSTNode], ...]:
    """The kinds of expression that can match."""
    if one_name(wanted) is not None:
        return (cst.BaseExpression,)
    if matcher.is_declared(wanted):
        return (cst.Name, cst.Attribute)
    return _STRINGS if string_value(wanted) is not None else (type(wanted),)


def _is_label(tree: Tree, node: cst.Name) -> bool:
    """A name that is no expression: a keyword, a parameter, the ``b`` of ``a.b``, what is defined or imported."""
    place = tree.place(node)
    return place.field in {"attr", "keyword", "asname"} or isinstance(
        place.parent, (cst.Param, cst.FunctionDef, cst.ClassDef, cst.ImportAlias, cst.ImportFrom, cst.AsName)
    )


def _find_statements(
    tree: Tree, wanted: Sequence[cst.CSTNode], scope: cst.CSTNode, matcher: Matcher
) -> Iterator[Match]:
    for block in tree.within(scope, (cst.Module, cst.IndentedBlock)):
        body, start = tuple(getattr(block, "body", ())), 0
        while start < len(body):
            found = matcher.match_prefix(wanted, body[start:])
            bindings, length = found or ({}, 0)
            if length:
                yield Match(body[start : start + length], bindings)
            start += length or 1

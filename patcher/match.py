"""Compares a pattern's nodes with a file's nodes: the same meaning, whatever the layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import libcst as cst

from patcher.errors import RuleError
from patcher.meaning import digest, is_absent, is_node, meaning_fields, string_value
from patcher.metavariable import RUN
from patcher.syntax import dotted_text, qualified, same_name
from patcher.template import one_name, run_name

# A search takes some thousand steps; runs within runs could make it billions, so a pattern cannot blow up.
MAX_STEPS = 200_000

Captured: TypeAlias = "cst.CSTNode | tuple[cst.CSTNode, ...]"
Bindings: TypeAlias = "dict[str, Captured]"

# A pattern that leaves these out does not care about them.
_OPTIONAL = frozenset({"annotation", "decorators", "default", "returns", "type_parameters"})


class Matcher:
    """Compares pattern nodes with source nodes; a match is the bindings, no match is None.

    Args:
        names: what the rule declares: last name -> dotted name.
        imports: what the file's names stand for: local name -> dotted name.
    """

    def __init__(self, names: Mapping[str, str], imports: Mapping[str, str]) -> None:
        self._names = names
        self._imports = imports
        self._steps = 0

    def match(self, wanted: cst.CSTNode, node: cst.CSTNode, bound: Bindings) -> Bindings | None:
        """Does the node mean what the pattern's node says, given what metavariables are bound to?

        Raises:
            RuleError: the search of which this is a part takes too many steps.
        """
        self._step()
        name = one_name(wanted)
        if name is not None:
            return self._bind(name, node, bound)
        if isinstance(wanted, cst.Name) and wanted.value in self._names:
            return bound if self._is_named(self._names[wanted.value], node) else None
        text = string_value(wanted)
        if text is not None:
            return bound if string_value(node) == text else None
        if type(wanted) is not type(node):
            return None
        if isinstance(wanted, cst.Attribute) and isinstance(node, cst.Attribute):
            return self._match_attribute(wanted, node, bound)
        if isinstance(wanted, cst.Call) and isinstance(node, cst.Call):
            return self._match_call(wanted, node, bound)
        if isinstance(wanted, cst.Parameters) and isinstance(node, cst.Parameters):
            return self._match_parameters(wanted, node, bound)
        return self._match_fields(wanted, node, bound)

    def is_declared(self, wanted: cst.CSTNode) -> bool:
        """Is it a name that the rule declares, which the file may spell another way?"""
        return isinstance(wanted, cst.Name) and wanted.value in self._names

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise RuleError("a pattern takes too long to match", hint="use fewer runs ($$$) inside one another")

    def _is_named(self, dotted: str, node: cst.CSTNode) -> bool:
        known = qualified(node, self._imports)
        return same_name(known, dotted) if known else dotted_text(node) == dotted.rpartition(".")[2]

    def _match_attribute(self, wanted: cst.Attribute, node: cst.Attribute, bound: Bindings) -> Bindings | None:
        """The ``b`` of ``a.b`` is no name in scope: what the rule declares does not apply to it."""
        name = one_name(wanted.attr)
        if name is None and wanted.attr.value != node.attr.value:
            return None
        result = bound if name is None else self._bind(name, node.attr, bound)
        return None if result is None else self.match(wanted.value, node.value, result)

    def _bind(self, name: str, value: Captured, bound: Bindings) -> Bindings | None:
        if not name:
            return bound
        if name in bound:
            return bound if _same_meaning(bound[name], value) else None
        return {**bound, name: value}

    def _match_fields(self, wanted: cst.CSTNode, node: cst.CSTNode, bound: Bindings) -> Bindings | None:
        for name in meaning_fields(type(wanted)):
            expected, actual = getattr(wanted, name), getattr(node, name)
            if is_absent(expected) and name in _OPTIONAL:
                continue
            result = self._match_value(expected, actual, bound)
            if result is None:
                return None
            bound = result
        return bound

    def _match_value(self, expected: object, actual: object, bound: Bindings) -> Bindings | None:
        if is_node(expected):
            return self.match(expected, actual, bound) if is_node(actual) else None
        if isinstance(expected, (list, tuple)):
            if not isinstance(actual, (list, tuple)):
                return None
            found = self._match_run(tuple(expected), tuple(actual), bound, whole=True)
            return None if found is None else found[0]
        if isinstance(actual, str):  # the text of an f-string may hold line ends
            actual = actual.replace("\r\n", "\n")
        same = expected == actual or (is_absent(expected) and is_absent(actual))
        return bound if same else None

    def match_prefix(self, wanted: Sequence[cst.CSTNode], nodes: Sequence[cst.CSTNode]) -> tuple[Bindings, int] | None:
        """Match statements from the first on; gives the bindings and how many statements were taken."""
        return self._match_run(tuple(wanted), tuple(nodes), {}, whole=False)

    def _match_run(
        self, wanted: tuple[cst.CSTNode, ...], nodes: tuple[cst.CSTNode, ...], bound: Bindings, *, whole: bool
    ) -> tuple[Bindings, int] | None:
        if not wanted:
            return (bound, 0) if not whole or not nodes else None
        name = run_name(wanted[0])
        if name is None:
            head = self.match(wanted[0], nodes[0], bound) if nodes else None
            rest = None if head is None else self._match_run(wanted[1:], nodes[1:], head, whole=whole)
            return None if rest is None else (rest[0], rest[1] + 1)
        lengths = [len(nodes)] if whole and len(wanted) == 1 else range(len(nodes) + 1)
        for length in lengths:
            self._step()
            head = self._bind(name, nodes[:length], bound)
            rest = None if head is None else self._match_run(wanted[1:], nodes[length:], head, whole=whole)
            if rest is not None:
                return rest[0], rest[1] + length
        return None

    def _match_parameters(self, wanted: cst.Parameters, node: cst.Parameters, bound: Bindings) -> Bindings | None:
        star = wanted.star_arg
        if not (isinstance(star, cst.Param) and star.name.value.startswith(RUN)):
            return self._match_fields(wanted, node, bound)
        found = self._match_run(tuple(wanted.params), tuple(node.params[: len(wanted.params)]), bound, whole=True)
        result = None if found is None else found[0]
        by_name = {param.name.value: param for param in (*node.params, *node.kwonly_params)}
        for param in wanted.kwonly_params:  # after a run, parameters match by name wherever they stand
            other = by_name.get(param.name.value)
            result = None if result is None or other is None else self._match_fields(param, other, result)
        return None if result is None else self._bind(star.name.value[len(RUN) :], node, result)

    def _match_call(self, wanted: cst.Call, node: cst.Call, bound: Bindings) -> Bindings | None:
        result = self.match(wanted.func, node.func, bound)
        return None if result is None else self._match_arguments(wanted.args, node.args, result)

    def _match_arguments(self, wanted: Sequence[cst.Arg], args: Sequence[cst.Arg], bound: Bindings) -> Bindings | None:
        """Keyword arguments match by name wherever they stand; runs take what is left, in source order."""
        positions: dict[int, int] = {}
        for index, arg in enumerate(wanted):
            if arg.keyword is None:
                continue
            found = next((i for i, a in enumerate(args) if _keyword(a) == arg.keyword.value), None)
            result = None if found is None else self.match(arg.value, args[found].value, bound)
            if found is None or result is None:
                return None
            positions[index], bound = found, result
        taken = set(positions.values())
        rest = [i for i in range(len(args)) if i not in taken]
        pieces = [i for i, arg in enumerate(wanted) if arg.keyword is None]
        return self._match_pieces(wanted, args, pieces, rest, positions, bound)

    def _match_pieces(
        self,
        wanted: Sequence[cst.Arg],
        args: Sequence[cst.Arg],
        pieces: Sequence[int],
        rest: Sequence[int],
        positions: Mapping[int, int],
        bound: Bindings,
    ) -> Bindings | None:
        """Positional arguments and runs of the pattern (its ``pieces``) against the arguments that are left."""
        if not pieces:
            return None if rest else bound
        name = run_name(wanted[pieces[0]])
        if name is None:
            head = self._match_fields(wanted[pieces[0]], args[rest[0]], bound) if rest else None
            return None if head is None else self._match_pieces(wanted, args, pieces[1:], rest[1:], positions, head)
        for length in _run_lengths(pieces, rest, positions):
            self._step()
            head = self._bind(name, tuple(args[i] for i in rest[:length]), bound)
            if head is not None:
                found = self._match_pieces(wanted, args, pieces[1:], rest[length:], positions, head)
                if found is not None:
                    return found
        return None


def _keyword(arg: cst.Arg) -> str | None:
    return arg.keyword.value if arg.keyword is not None else None


def _run_lengths(pieces: Sequence[int], rest: Sequence[int], positions: Mapping[int, int]) -> Sequence[int]:
    """How many of the arguments that are left a run may take: up to the keyword after it, if more is to come."""
    if len(pieces) == 1:
        return [len(rest)]
    following = positions.get(pieces[0] + 1)
    if following is None:
        return range(len(rest) + 1)
    return [sum(index < following for index in rest)]


def _same_meaning(one: Captured, other: Captured) -> bool:
    return digest(_as_tuple(one)) == digest(_as_tuple(other))


def _as_tuple(value: Captured) -> tuple[cst.CSTNode, ...]:
    return value if isinstance(value, tuple) else (value,)

"""Fills a fix in: metavariables by what the pattern captured, names by how the file spells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import libcst as cst

from patcher.errors import RuleError
from patcher.layout import lay_out, shares_arguments, with_parameters
from patcher.match import Captured
from patcher.meaning import digest
from patcher.metavariable import ONE, RUN, restored
from patcher.pattern import Match, Pattern
from patcher.syntax import Tree, parse, qualified, same_name, walk
from patcher.template import one_name, parse_template, run_name

PARENTHESES = "put parentheses around what a metavariable or a fix puts beside an operator"
_ELEMENTS = (cst.Element, cst.StarredElement)
_STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


def fill(text: str, match: Match, pattern: Pattern, tree: Tree, indent: str) -> list[cst.CSTNode]:
    """The statements of a fix or insertion, ready to stand in the tree.

    Args:
        text: the fix as the rule has it.
        match: what its metavariables stand for.
        pattern: the pattern that matched: it knows the names that the rule declares.
        tree: the file, for its newline and its imports.
        indent: the white space in front of the place that it goes to.

    Raises:
        RuleError: a metavariable is not captured, or stands where nothing can be filled in.
    """
    filler = _Filler(match, pattern, tree, indent)
    try:
        filled = cst.ensure_type(_parsed(text).visit(filler), cst.Module).body
        _check_filled(filled, text)
        same = digest(parse(cst.Module(filled).code).body) == digest(filled)
    except (TypeError, ValueError, AttributeError, cst.CSTValidationError) as error:
        # LibCST's own errors, for a node in a wrong place
        raise RuleError("the fix does not make Python", expected=text.strip("\n"), found=str(error)) from error
    if not same:
        raise RuleError("the fix reads another way than it says", expected=text.strip("\n"), hint=PARENTHESES)
    return list(filled)


def _check_filled(filled: Sequence[cst.CSTNode], text: str) -> None:
    for node in (inner for statement in filled for inner in walk(statement)):
        if isinstance(node, cst.Name) and node.value.startswith((ONE, RUN)):
            raise RuleError(f"{restored(node.value)} can't stand there in a fix", found=text.strip("\n"))


@lru_cache(maxsize=512)
def _parsed(text: str) -> cst.Module:
    return parse_template(text)  # visiting it makes all nodes anew, so it may be shared


class _Filler(cst.CSTTransformer):
    """Replaces the placeholders of a template; what was captured goes in as it is and is not looked into."""

    def __init__(self, match: Match, pattern: Pattern, tree: Tree, indent: str) -> None:
        super().__init__()
        self._captures = match.captures
        self._newline = tree.module.default_newline
        self._indent = indent
        self._functions = [n for n in match.nodes if isinstance(n, cst.FunctionDef)]
        self._calls = [n for m in match.nodes for n in walk(m) if isinstance(n, cst.Call)]
        self._spelling = _spellings(match, pattern, tree.names)
        self._used: set[str] = set()

    def _captured(self, name: str) -> Captured:
        if name not in self._captures:
            raise RuleError(f"the fix uses ${name or '_'}, which its pattern does not capture")
        value = self._captures[name]
        if name in self._used:  # a node may stand in a tree once
            return tuple(n.deep_clone() for n in value) if isinstance(value, tuple) else value.deep_clone()
        self._used.add(name)
        return value

    def _run(self, name: str, *kinds: type) -> tuple[Any, ...]:
        value = self._captured(name)
        if isinstance(value, tuple) and all(isinstance(node, kinds) for node in value):
            return value
        raise RuleError(f"what $$${name} captures can't stand where the fix puts it")

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        name = one_name(original_node)
        if name is None:
            spelled = self._spelling.get(original_node.value)
            return updated_node if spelled is None else spelled.deep_clone()
        value = self._captured(name)
        if isinstance(value, cst.BaseExpression):
            own = original_node.lpar and not value.lpar
            return value.with_changes(lpar=original_node.lpar, rpar=original_node.rpar) if own else value
        raise RuleError(f"what ${name} captures can't stand where the fix puts it")

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Only the head of ``a.b`` is a name in scope: a declared name's spelling never goes into the tail."""
        if one_name(original_node.attr) is None:
            return updated_node.with_changes(attr=original_node.attr)
        return updated_node

    def leave_SimpleString(  # noqa: N802
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        return updated_node.with_changes(value=original_node.value.replace("\n", self._newline))

    def leave_FormattedStringText(  # noqa: N802
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.BaseFormattedStringContent:
        return updated_node.with_changes(value=original_node.value.replace("\n", self._newline))

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:  # noqa: N802
        """A docstring moves in as far as its code."""
        text = updated_node.value
        if not isinstance(original_node.value, cst.SimpleString) or not isinstance(text, cst.SimpleString):
            return updated_node
        first, *rest = text.value.split("\n")
        moved = [self._indent + line if line.strip() else line for line in rest]
        return updated_node.with_changes(value=text.with_changes(value="\n".join([first, *moved])))

    def leave_Arg(  # noqa: N802
        self, original_node: cst.Arg, updated_node: cst.Arg
    ) -> cst.Arg | cst.FlattenSentinel[cst.Arg]:
        name = run_name(original_node)
        if name is None:
            return updated_node.with_changes(keyword=original_node.keyword)
        return cst.FlattenSentinel(self._run(name, cst.Arg))

    def leave_Element(  # noqa: N802
        self, original_node: cst.Element, updated_node: cst.Element
    ) -> cst.BaseElement | cst.FlattenSentinel[cst.BaseElement]:
        name = run_name(original_node)
        return updated_node if name is None else cst.FlattenSentinel(self._run(name, *_ELEMENTS))

    def leave_StarredElement(  # type: ignore[override]  # noqa: N802  LibCST takes more than it declares
        self, original_node: cst.StarredElement, updated_node: cst.StarredElement
    ) -> cst.BaseElement | cst.FlattenSentinel[cst.BaseElement]:
        name = run_name(original_node)
        return updated_node if name is None else cst.FlattenSentinel(self._run(name, *_ELEMENTS))

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        name = run_name(original_node)
        return updated_node if name is None else cst.FlattenSentinel(self._run(name, *_STATEMENTS))

    def leave_Parameters(self, original_node: cst.Parameters, updated_node: cst.Parameters) -> cst.Parameters:  # noqa: N802
        star = original_node.star_arg
        name = run_name(star.name) if isinstance(star, cst.Param) else None
        if name is None:
            return updated_node
        held = self._captured(name)
        if not isinstance(held, cst.Parameters):
            raise RuleError(f"what $$${name} captures can't stand where the fix puts it")
        owner = next((f for f in self._functions if f.params is held), None)
        before = owner.whitespace_before_params if owner else cst.SimpleWhitespace("")
        return with_parameters(held, updated_node, before)

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        """A function of the fix that is a matched one keeps all of it that the fix does not write out.

        Decorators of the fix that it does not have come above its own.
        """
        matched = next((f for f in self._functions if f.name.value == original_node.name.value), None)
        if matched is None:
            return updated_node
        kept = len(original_node.body.body) == 1 and run_name(original_node.body.body[0]) is not None
        body = matched.body if kept else updated_node.body
        own = {digest([decorator]) for decorator in matched.decorators}
        new = [decorator for decorator in updated_node.decorators if digest([decorator]) not in own]
        return matched.with_changes(
            params=updated_node.params,
            body=body,
            leading_lines=updated_node.leading_lines,
            decorators=[*new, *matched.decorators],
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: ARG002, N802
        """A call of the fix that is a matched one, with other arguments, also has that call's layout."""
        call = self._matched_call(updated_node)
        if call is None:
            return updated_node
        func = call.func if digest([call.func]) == digest([updated_node.func]) else updated_node.func
        return lay_out(call, updated_node.args).with_changes(func=func)

    def _matched_call(self, wanted: cst.Call) -> cst.Call | None:
        """The matched call whose arguments the fix takes over, or else the only one of that name, if it is like it."""
        taken = {id(arg) for arg in wanted.args}
        owner = next((call for call in self._calls if any(id(arg) in taken for arg in call.args)), None)
        if owner is not None:
            return owner
        func = digest([wanted.func])
        named = [call for call in self._calls if digest([call.func]) == func]
        only = named[0] if len(named) == 1 else None
        alike = only and (not only.args or not wanted.args or shares_arguments(only, wanted.args))
        return only if alike else None


def _spellings(match: Match, pattern: Pattern, names: Mapping[str, str]) -> dict[str, cst.BaseExpression]:
    """How the matched code, or else the file, spells each name that the rule declares, where it is another way."""
    spelled: dict[str, cst.BaseExpression] = {}
    for last, dotted in pattern.names.items():
        local = [name for name, target in names.items() if same_name(target, dotted)]
        if local and last not in local:
            spelled[last] = cst.Name(local[0])
    for node in (inner for outer in match.nodes for inner in walk(outer)):
        known = qualified(node, names)
        for last, dotted in pattern.names.items():
            if known and same_name(known, dotted) and isinstance(node, (cst.Name, cst.Attribute)):
                spelled[last] = node
    return spelled

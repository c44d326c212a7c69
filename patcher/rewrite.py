"""Carries out one edit on a tree: fills a fix in with what its pattern captured, and puts it in place.

Only the nodes on the path to the edit are rebuilt, so every byte elsewhere stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import libcst as cst

from patcher.errors import RuleError
from patcher.layout import lay_out, with_parameters
from patcher.match import Captured
from patcher.pattern import Match, Pattern
from patcher.syntax import Tree, digest, qualified, walk
from patcher.template import one_name, parse_template, run_name

Statements = Sequence[cst.CSTNode]


def replace(tree: Tree, match: Match, pattern: Pattern, fix: str, imports: Mapping[str, str]) -> Tree:
    """Put the filled-in fix where the pattern matched.

    Raises:
        RuleError: the fix uses a metavariable that the pattern does not capture, or is of another kind.
    """
    filled = _Filler(match, pattern, imports, tree.module).fill(parse_template(fix))
    if pattern.expression is None:
        return _replace_statements(tree, match.nodes, filled)
    if len(filled) != 1 or not _is_expression_line(filled[0]):
        line = tree.place(tree.place(match.nodes[0]).parent).parent
        if not _is_expression_line(line):
            raise RuleError("the fix of an expression inside a statement is not one expression", found=fix)
        return _replace_statements(tree, [line], filled)
    line = cst.ensure_type(filled[0], cst.SimpleStatementLine)
    return _replace_expression(tree, match.nodes[0], cst.ensure_type(line.body[0], cst.Expr).value)


def insert(tree: Tree, match: Match, pattern: Pattern, text: str, *, before: bool) -> Tree:
    """Put statements before or after the statement that holds the match."""
    anchor = match.nodes[0] if before else match.nodes[-1]
    statement = tree.statement_of(anchor)
    filled = _Filler(match, pattern, {}, tree.module).fill(parse_template(text))
    new = [_indented(node, tree.indent_of(statement)) for node in filled]
    place = tree.place(statement)
    assert place.index is not None  # noqa: S101  a statement always stands in a block
    body = list(getattr(place.parent, place.field))
    at = place.index if before else place.index + 1
    return tree.rebuilt(place.parent, place.field, [*body[:at], *new, *body[at:]])


def _is_expression_line(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and isinstance(node.body[0], cst.Expr)


def _replace_expression(tree: Tree, old: cst.CSTNode, new: cst.BaseExpression) -> Tree:
    parens = {"lpar": old.lpar, "rpar": old.rpar} if isinstance(old, cst.BaseExpression) and not new.lpar else {}
    place = tree.place(old)
    node = new.with_changes(**parens) if parens else new
    if place.index is None:
        return tree.rebuilt(place.parent, place.field, node)
    held = list(getattr(place.parent, place.field))
    held[place.index] = node
    return tree.rebuilt(place.parent, place.field, held)


def _replace_statements(tree: Tree, old: Statements, new: Statements) -> Tree:
    place = tree.place(old[0])
    assert place.index is not None  # noqa: S101  a statement always stands in a block
    body = list(getattr(place.parent, place.field))
    new = [_indented(node, tree.indent_of(old[0])) for node in new]
    taken = _with_lead(_kept(new, old), old[0])
    body[place.index : place.index + len(old)] = taken
    if not body:
        body = [cst.SimpleStatementLine([cst.Pass()])]
    return tree.rebuilt(place.parent, place.field, body)


def _indented(node: cst.CSTNode, indent: str) -> cst.CSTNode:
    """The docstrings of a template's functions, moved in as far as their code."""
    return cst.ensure_type(node.visit(_Docstrings(indent)), cst.CSTNode) if indent else node


class _Docstrings(cst.CSTTransformer):
    def __init__(self, indent: str) -> None:
        super().__init__()
        self._indent = indent

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:  # noqa: ARG002, N802
        text = updated_node.value
        if not isinstance(text, cst.SimpleString) or not text.value.startswith('"""'):
            return updated_node
        first, *rest = text.value.split("\n")
        moved = [self._indent + line if line.strip() else line for line in rest]
        return updated_node.with_changes(value=text.with_changes(value="\n".join([first, *moved])))


def _kept(new: Statements, old: Statements) -> list[cst.CSTNode]:
    """A statement that the fix repeats unchanged stays the old one, with its comments and layout."""
    left = {digest([node]): node for node in old}
    result = []
    for index, node in enumerate(new):
        same = left.pop(digest([node]), None)
        own = getattr(node, "leading_lines", [])
        moved = index > 0 and (own or same is old[0])  # what stood above the old code stays above the new
        result.append(node if same is None else same.with_changes(leading_lines=own) if moved else same)
    return result


def _with_lead(new: Statements, old: cst.CSTNode) -> list[cst.CSTNode]:
    """The first new statement keeps the blank lines of the old one, and its comments unless it brings its own."""
    if not new:
        return []
    if new[0] is old:
        return list(new)
    own = list(getattr(new[0], "leading_lines", []))
    lead = list(getattr(old, "leading_lines", []))
    if any(line.comment for line in own):
        lead = [line for line in lead if not line.comment]
    return [new[0].with_changes(leading_lines=[*lead, *own]), *new[1:]]


class _Filler(cst.CSTTransformer):
    """Replaces the placeholders of a template by what the pattern captured."""

    def __init__(self, match: Match, pattern: Pattern, imports: Mapping[str, str], module: cst.Module) -> None:
        super().__init__()
        self._captures = match.captures
        self._newline = module.default_newline
        self._functions = [n for n in match.nodes if isinstance(n, cst.FunctionDef)]
        self._calls = [n for m in match.nodes for n in walk(m) if isinstance(n, cst.Call)]
        self._spelling = _spellings(match, pattern, imports)
        self._used: set[str] = set()

    def fill(self, template: cst.Module) -> list[cst.CSTNode]:
        return list(cst.ensure_type(template.visit(self), cst.Module).body)

    def _captured(self, name: str) -> Captured:
        if name not in self._captures:
            raise RuleError(f"the fix uses ${name}, which its pattern does not capture")
        value = self._captures[name]
        if name in self._used:  # a node may stand in a tree once
            return tuple(n.deep_clone() for n in value) if isinstance(value, tuple) else value.deep_clone()
        self._used.add(name)
        return value

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        name = one_name(original_node)
        if name is not None:
            return cast("cst.BaseExpression", self._captured(name))
        return self._spelling.get(original_node.value, updated_node)

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

    def leave_Arg(  # noqa: N802
        self, original_node: cst.Arg, updated_node: cst.Arg
    ) -> cst.Arg | cst.FlattenSentinel[cst.Arg]:
        name = run_name(original_node)
        if name is not None:
            return cst.FlattenSentinel(cast("tuple[cst.Arg, ...]", self._captured(name)))
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        name = run_name(original_node)
        if name is None:
            return updated_node
        return cst.FlattenSentinel(cast("tuple[cst.BaseStatement, ...]", self._captured(name)))

    def leave_Parameters(self, original_node: cst.Parameters, updated_node: cst.Parameters) -> cst.Parameters:  # noqa: N802
        star = original_node.star_arg
        name = run_name(star.name) if isinstance(star, cst.Param) else None
        if name is None:
            return updated_node
        return with_parameters(cst.ensure_type(cast("cst.CSTNode", self._captured(name)), cst.Parameters), updated_node)

    def leave_FunctionDef(  # noqa: N802
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        """A function of the fix that is a matched one keeps all of it that the fix does not write out."""
        matched = next((f for f in self._functions if f.name.value == original_node.name.value), None)
        if matched is None:
            return updated_node
        kept = len(original_node.body.body) == 1 and run_name(original_node.body.body[0]) is not None
        body = matched.body if kept else updated_node.body
        return matched.with_changes(params=updated_node.params, body=body, leading_lines=[])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: ARG002, N802
        """A call of the fix that takes over arguments of a matched call also takes over that call's layout."""
        taken = {id(arg) for arg in updated_node.args}
        for call in self._calls:
            if any(id(arg) in taken for arg in call.args):
                return lay_out(call, updated_node.args).with_changes(func=updated_node.func)
        return updated_node


def _spellings(match: Match, pattern: Pattern, imports: Mapping[str, str]) -> dict[str, cst.BaseExpression]:
    """How the matched code, or else the file, spells each name that the rule declares."""
    spelled: dict[str, cst.BaseExpression] = {}
    for last, dotted in pattern.names.items():
        local = next((k for k, v in imports.items() if v == dotted and k != last), None)
        if local is not None:
            spelled[last] = cst.Name(local)
    for node in (inner for outer in match.nodes for inner in walk(outer)):
        known = qualified(node, imports)
        for last, dotted in pattern.names.items():
            if known == dotted and isinstance(node, (cst.Name, cst.Attribute)):
                spelled[last] = node
    return spelled

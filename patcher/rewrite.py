"""Carries out one edit on a tree: fills a fix in with what its pattern captured, and puts it in place.

Only the nodes on the path to the edit are rebuilt, so every byte elsewhere stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from patcher.errors import RuleError
from patcher.fill import fill
from patcher.keep import has_comment, keep, lead, merged, set_apart
from patcher.pattern import Match, Pattern
from patcher.syntax import Tree

Statements = Sequence[cst.CSTNode]
Pairs = Sequence[tuple[cst.CSTNode, "cst.CSTNode | None"]]


def replace(tree: Tree, match: Match, pattern: Pattern, fix: str) -> Tree:
    """Put the filled-in fix where the pattern matched; an empty fix deletes the statement.

    Raises:
        RuleError: the fix uses a metavariable that the pattern does not capture, or is of another kind.
    """
    filled = fill(fix, match, pattern, tree, tree.indent_of(match.nodes[0]))
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
    new = fill(text, match, pattern, tree, tree.indent_of(statement))
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
    node = merged(new.with_changes(**parens) if parens else new, old)
    if place.index is None:
        return tree.rebuilt(place.parent, place.field, node)
    held = list(getattr(place.parent, place.field))
    held[place.index] = node
    return tree.rebuilt(place.parent, place.field, held)


def _replace_statements(tree: Tree, old: Statements, new: Statements) -> Tree:
    place = tree.place(old[0])
    assert place.index is not None  # noqa: S101  a statement always stands in a block
    body = list(getattr(place.parent, place.field))
    following = body[place.index + len(old) :]
    pairs = keep(new, old)
    left = _left_over(pairs, old)
    if following and left and (has_comment(left) or not set_apart(lead(following[0]))):
        following[0] = following[0].with_changes(leading_lines=[*left, *lead(following[0])])
    body[place.index :] = [*_led(pairs, new, old[0]), *following]
    if not body:
        body = [cst.SimpleStatementLine([cst.Pass()], leading_lines=left)]
    elif not following and has_comment(left):
        footer = getattr(place.parent, "footer", ())
        return tree.rebuilt(place.parent, place.field, body, footer=[*left, *footer])
    return tree.rebuilt(place.parent, place.field, body)


def _left_over(pairs: Pairs, old: Statements) -> list[cst.EmptyLine]:
    """What stood above statements that are gone, set apart by a blank line and so not about them."""
    kept = {id(source) for _, source in pairs}
    gone = [node for node in old if id(node) not in kept and not (pairs and node is old[0])]
    apart = [set_apart(lead(node)) for node in gone]
    return [line for lines in apart for line in lines if has_comment(lines) or not pairs]


def _led(pairs: Pairs, new: Statements, first: cst.CSTNode) -> list[cst.CSTNode]:
    """The new statements with what they keep; what stood above the first old one stays above the new ones."""
    result = [
        node if source is not first or not index else node.with_changes(leading_lines=lead(new[index]))
        for index, (node, source) in enumerate(pairs)
    ]
    if result and pairs[0][1] is not first:
        own, above = lead(result[0]), lead(first)
        above = set_apart(above) if has_comment(own) else above
        result[0] = result[0].with_changes(leading_lines=[*above, *own])
    return result

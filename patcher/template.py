"""Patterns and fixes as Python: each metavariable becomes a placeholder name that LibCST can parse."""

from __future__ import annotations

import libcst as cst

from patcher.errors import RuleError
from patcher.metavariable import ONE, RUN, restored, with_placeholders
from patcher.source import SourceProblem, parse_safely


def parse_template(text: str) -> cst.Module:
    """A pattern or fix as a module whose metavariables are placeholder names.

    Raises:
        RuleError: it is not Python once the metavariables are names, or it ends with a comment.
    """
    python = with_placeholders(text)
    try:
        parse_safely(python)
        module = cst.parse_module(python)
    except (SourceProblem, cst.ParserSyntaxError) as error:
        raise RuleError(
            "a pattern is not Python",
            expected="Python with $NAME for one node and $$$NAME for a run",
            found=f"{text.strip()}\n({restored(str(error))})",
        ) from error
    loose = module.footer if module.body else module.header
    if any(line.comment for line in loose):
        raise RuleError("a comment at the end of a pattern or fix belongs to no statement", found=text.strip("\n"))
    return cst.ensure_type(_with_header_on_first(module).visit(_Literal()), cst.Module)


class _Literal(cst.CSTTransformer):
    """Strings and comments of a template mean what they say; a blank line stays blank wherever it goes."""

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:  # noqa: N802
        return updated_node if original_node.comment else cst.EmptyLine(indent=False)

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:  # noqa: ARG002, N802
        return updated_node.with_changes(value=restored(updated_node.value))

    def leave_SimpleString(  # noqa: N802
        self,
        original_node: cst.SimpleString,  # noqa: ARG002
        updated_node: cst.SimpleString,
    ) -> cst.SimpleString:
        return updated_node.with_changes(value=restored(updated_node.value))

    def leave_FormattedStringText(  # noqa: N802
        self,
        original_node: cst.FormattedStringText,  # noqa: ARG002
        updated_node: cst.FormattedStringText,
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=restored(updated_node.value))


def _with_header_on_first(module: cst.Module) -> cst.Module:
    """LibCST keeps comments above the first statement apart; in a template they belong to that statement."""
    if not module.header or not module.body:
        return module
    first = module.body[0]
    lead = [*module.header, *first.leading_lines]
    return module.with_changes(header=[], body=[first.with_changes(leading_lines=lead), *module.body[1:]])


def run_name(node: cst.CSTNode) -> str | None:
    """The name of a run metavariable (``""`` for ``$$$``); None for any other node."""
    inner = node
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and isinstance(node.body[0], cst.Expr):
        inner = node.body[0].value
    elif (isinstance(node, cst.Arg) and node.star != "**" and node.keyword is None) or isinstance(
        node, (cst.Element, cst.StarredElement)
    ):
        inner = node.value
    elif not isinstance(node, cst.Name):
        return None
    text = inner.value if isinstance(inner, cst.Name) else ""
    return text[len(RUN) :] if text.startswith(RUN) else None


def one_name(node: cst.CSTNode) -> str | None:
    """The name of a one-node metavariable (``""`` for ``$_``); None for any other node."""
    if isinstance(node, cst.Name) and node.value.startswith(ONE):
        return node.value[len(ONE) :]
    return None

"""Patterns and fixes as Python: each metavariable becomes a placeholder name that LibCST can parse."""

from __future__ import annotations

import re

import libcst as cst

from patcher.errors import RuleError

ONE = "__one_"
RUN = "__run_"


def parse_template(text: str) -> cst.Module:
    """A pattern or fix as a module whose metavariables are placeholder names.

    Raises:
        RuleError: it is not Python once the metavariables are names.
    """
    lines = [_placeholders(line) for line in text.rstrip().split("\n")]
    try:
        module = cst.parse_module("\n".join(lines) + "\n")
    except cst.ParserSyntaxError as error:
        raise RuleError(
            "a pattern is not Python",
            where=f"line {error.raw_line} of the pattern",
            found=text.strip("\n"),
            hint="patterns are Python with $NAME for one node and $$$NAME for a run",
        ) from error
    return cst.ensure_type(_with_header_on_first(module).visit(_BareBlankLines()), cst.Module)


class _BareBlankLines(cst.CSTTransformer):
    """A blank line of a template stays blank wherever it goes: no trailing indentation."""

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:  # noqa: N802
        return updated_node if original_node.comment else cst.EmptyLine(indent=False)


def _with_header_on_first(module: cst.Module) -> cst.Module:
    """LibCST keeps comments above the first statement apart; in a template they belong to that statement."""
    if not module.header or not module.body:
        return module
    first = module.body[0]
    lead = [*module.header, *first.leading_lines]
    return module.with_changes(header=[], body=[first.with_changes(leading_lines=lead), *module.body[1:]])


def _placeholders(line: str) -> str:
    run = RUN if re.fullmatch(r"\s*\$\$\$[A-Z0-9_]*\s*", line) else f"*{RUN}"
    line = re.sub(r"\$\$\$([A-Z][A-Z0-9_]*)?", lambda m: run + (m.group(1) or ""), line)
    return re.sub(r"\$([A-Z][A-Z0-9_]*|_)", lambda m: ONE + ("" if m.group(1) == "_" else m.group(1)), line)


def run_name(node: cst.CSTNode) -> str | None:
    """The name of a run metavariable (``""`` for ``$$$``); None for any other node."""
    inner = node
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and isinstance(node.body[0], cst.Expr):
        inner = node.body[0].value
    elif (isinstance(node, cst.Arg) and node.star != "**" and node.keyword is None) or isinstance(
        node, cst.StarredElement
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

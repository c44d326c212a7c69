"""Metavariables as text: ``$X`` and ``$$$X`` become placeholder names, so that a template is Python.

Nothing here needs LibCST: a rule file is checked without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

ONE = "__one_"
RUN = "__run_"

_LONE_RUN = re.compile(r"\s*\$\$\$[A-Z0-9_]*\s*")
_RUN = re.compile(r"\$\$\$([A-Z][A-Z0-9_]*)?")
_ONE = re.compile(r"\$([A-Z][A-Z0-9_]*|_)")
_PLACEHOLDER = re.compile(rf"\*?{RUN}(?P<run>[A-Z0-9_]*)|{ONE}(?P<one>[A-Z0-9_]*)")


def with_placeholders(text: str) -> str:
    """A template's text with a name for each metavariable, and a final newline."""
    return "\n".join(_line(line) for line in text.rstrip().split("\n")) + "\n"


def _line(line: str) -> str:
    # A run on a line of its own is a statement; anywhere else it stands where ``*name`` may.
    run = RUN if _LONE_RUN.fullmatch(line) else f"*{RUN}"
    line = _RUN.sub(lambda m: run + (m.group(1) or ""), line)
    return _ONE.sub(lambda m: ONE + ("" if m.group(1) == "_" else m.group(1)), line)


def restored(text: str) -> str:
    """The text of a string or comment as it was written: metavariables stand for code only."""
    return _PLACEHOLDER.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    if match["run"] is not None:
        return f"$$${match['run']}"
    return f"${match['one'] or '_'}"


def names_used(module: ast.Module) -> Iterator[str]:
    """Every metavariable of a parsed template as it is written, such as ``$X`` and ``$$$``; repeated ones again."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Constant):
            texts = (value for _, value in ast.iter_fields(node) if isinstance(value, str))
            yield from (restored(text) for text in texts if text.startswith((ONE, RUN)))


def is_run(node: ast.AST) -> bool:
    """Is it a run of statements, arguments or elements?"""
    inner = node
    while isinstance(inner, (ast.Expr, ast.Starred)):
        inner = inner.value
    return isinstance(inner, ast.Name) and inner.id.startswith(RUN)

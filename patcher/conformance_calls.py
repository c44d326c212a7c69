"""What a call in a file passes, and to what."""

from __future__ import annotations

import ast

from patcher.facts_module import last_name
from patcher.signature import CallShape

_WIDTH = 80


def callee(node: ast.Call) -> tuple[ast.expr, CallShape]:
    """The function called and what it is given, through ``functools.partial``."""
    if last_name(node.func) == "partial" and node.args:
        return node.args[0], _shape(node.args[1:], node.keywords, partial=True)
    return node.func, _shape(node.args, node.keywords, partial=False)


def _shape(args: list[ast.expr], keywords: list[ast.keyword], *, partial: bool) -> CallShape:
    starred = [index for index, arg in enumerate(args) if isinstance(arg, ast.Starred)]
    names = tuple(k.arg for k in keywords if k.arg is not None)
    double_star = any(k.arg is None for k in keywords)
    return CallShape(starred[0] if starred else len(args), names, bool(starred), double_star, partial)


def call_text(node: ast.Call) -> str:
    """The call on one line, shortened."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 4] + " ..."

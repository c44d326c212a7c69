"""What a piece of Python means, with its layout left out: comparing and digesting LibCST nodes.

LibCST keeps every space and comment in the tree, in fields of their own. This module knows which fields
those are; everything above it sees meaning only.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TypeGuard

import libcst as cst

_LAYOUT_FIELDS = frozenset(
    {
        "colon", "comma", "dot", "end", "equal", "footer", "header", "indent", "lbrace", "lbracket",
        "leading_lines", "lines_after_decorators", "lpar", "parens", "rbrace", "rbracket", "rpar",
        "semicolon", "start", "trailing_whitespace",
    }
)  # fmt: skip


@cache
def meaning_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node class that carry meaning rather than layout."""
    names = (field.name for field in fields(kind))
    layout = _LAYOUT_FIELDS - {"equal"} if kind is cst.FormattedStringExpression else _LAYOUT_FIELDS  # f"{x=}"
    return tuple(n for n in names if n not in layout and not n.startswith("whitespace"))


_NODE_KINDS: dict[type, bool] = {}


def is_node(value: object) -> TypeGuard[cst.CSTNode]:
    """Is it a LibCST node? Remembered for each class, because isinstance is slow for abstract ones."""
    kind = type(value)
    if kind not in _NODE_KINDS:
        _NODE_KINDS[kind] = issubclass(kind, cst.CSTNode)
    return _NODE_KINDS[kind]


def is_absent(value: object) -> bool:
    """True for a field that holds nothing: None, a sentinel, an empty sequence."""
    return value is None or isinstance(value, cst.MaybeSentinel) or value in ((), [])


_STRINGS = frozenset({cst.SimpleString, cst.ConcatenatedString})


def string_value(node: object) -> str | bytes | None:
    """What a string literal, or several in a row, say; None for anything else, f-strings included.

    The indentation of a string of several lines is layout, as in a docstring.
    """
    if type(node) not in _STRINGS or not isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        return None  # asked of the class first, because isinstance is slow for abstract ones
    with warnings.catch_warnings():  # an unknown escape is the file's affair
        warnings.simplefilter("ignore")
        value = node.evaluated_value
    return inspect.cleandoc(value) if isinstance(value, str) and "\n" in value else value


def digest(nodes: Sequence[cst.CSTNode]) -> str:
    """Sixteen hex digits that name the meaning of some code, whatever its layout, quotes and comments."""
    return hashlib.sha256("\n".join(_spelled(node) for node in nodes).encode()).hexdigest()[:16]


def _spelled(value: object) -> str:
    text = string_value(value)
    if text is not None:
        return repr(text)
    if is_node(value):
        parts = ((name, getattr(value, name)) for name in meaning_fields(type(value)))
        inner = ",".join(f"{name}={_spelled(part)}" for name, part in parts if not is_absent(part))
        return f"{type(value).__name__}({inner})"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_spelled(item) for item in value)}]"
    return repr(value.replace("\r\n", "\n") if isinstance(value, str) else value)

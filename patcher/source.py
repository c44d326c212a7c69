"""Which Python text may be given to LibCST at all.

LibCST's parser takes time that grows with a power of the nesting (2000 brackets: minutes) and then crashes the
process; walking its trees recurses. CPython's own parser refuses such text safely, so it is asked first.
"""

from __future__ import annotations

import ast
import warnings

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64  # levels of syntax tree; vLLM's and speculators' files have up to 25


class SourceProblem(ValueError):  # noqa: N818  said of a file, by no means always an error of ours
    """Why a text is not given to LibCST, in words."""


def parse_safely(source: str | bytes) -> ast.Module:
    """The text as CPython parses it.

    Raises:
        SourceProblem: it does not parse, it is larger than MAX_BYTES, or it nests deeper than MAX_DEPTH.
    """
    if len(source) > MAX_BYTES:
        raise SourceProblem(f"larger than {MAX_BYTES} bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(source)
        except SyntaxError as error:
            raise SourceProblem(f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)) from error
        except (ValueError, LookupError, MemoryError, RecursionError) as error:
            raise SourceProblem(str(error) or type(error).__name__) from error
    if _depth(module) > MAX_DEPTH:
        raise SourceProblem(f"nested deeper than {MAX_DEPTH} levels")
    return module


def _depth(module: ast.Module) -> int:
    deepest, level = 0, [module]
    below: list[ast.AST] = list(level)
    while below:
        deepest += 1
        below = [child for node in below for child in ast.iter_child_nodes(node)]
    return deepest


def check_compiles(source: bytes, name: str) -> None:
    """Would this interpreter run the file?

    Raises:
        SourceProblem: it would not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, name, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise SourceProblem(f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)) from error
        except (ValueError, LookupError, MemoryError, RecursionError) as error:
            raise SourceProblem(str(error) or type(error).__name__) from error

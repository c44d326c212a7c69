"""Which Python text may be given to LibCST at all.

LibCST's parser takes time that grows with the square of the nesting, and some thousand brackets crash the process;
printing its trees recurses. CPython's own parser refuses such text safely, so it is asked first.
"""

from __future__ import annotations

import ast
import warnings

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50  # levels of syntax tree; the deepest file of vLLM 0.16 has 26
# The sum of all nodes' levels, which LibCST's time follows: 5 microseconds each at worst. vLLM's
# gpu_model_runner.py comes to 205,000, the files that rules change to under 10,000.
MAX_WORK = 600_000


class SourceProblem(ValueError):  # noqa: N818  said of a file, by no means always an error of ours
    """Why a text is not given to LibCST, in words."""


def parse_safely(source: str | bytes) -> ast.Module:
    """The text as CPython parses it.

    Raises:
        SourceProblem: it does not parse, or it is larger or deeper than any file that this tool is for.
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
    _check_size(module)
    return module


def _check_size(module: ast.Module) -> None:
    depth = work = 0
    level: list[ast.AST] = [module]
    while level:
        depth += 1
        work += depth * len(level)
        if depth > MAX_DEPTH or work > MAX_WORK:
            raise SourceProblem(f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else "too much code")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


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

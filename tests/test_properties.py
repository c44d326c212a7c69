"""Properties over generated layouts of a call: whatever it looks like, the edit is right and nothing else moves."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patcher.rule import Rule
from tests.helpers import FILE, check_noop, check_reversible, planned, replacing

NAMES = ["vllm.v1.request.Request"]
ADD = replacing("Request($$$A)", "Request($$$A, x=f(1))", unless="Request($$$, x=$_, $$$)", names=NAMES)
DROP = replacing("Request($$$B, x=$_, $$$A)", "Request($$$B, $$$A)", names=NAMES)
SET = replacing(
    "Request($$$B, x=$_, $$$A)", "Request($$$B, x=f(1), $$$A)", unless="Request($$$, x=f(1), $$$)", names=NAMES
)
SPELLINGS = [
    ("from vllm.v1.request import Request", "Request"),
    ("from vllm.v1.request import Request as R", "R"),
    ("from vllm.v1.request import (\n    Other,\n    Request as R,\n)", "R"),
    ("import vllm.v1.request as q", "q.Request"),
    ("import vllm.v1.request", "vllm.v1.request.Request"),
    ("from vllm.v1 import request", "request.Request"),
]
AFTER_COMMA = [
    "",
    " ",
    "  ",
    "\n    ",
    "\n        ",
    "  # tail {n}\n    ",
    "\n    # own {n}\n    ",
    "\n\n    ",
    " \\\n    ",
]
BEFORE_COMMA = ["", " ", "\n    ", "  # odd {n}\n    "]


@dataclass(frozen=True)
class Call:
    """A file with one call of Request: its arguments in order, and the text around and between them."""

    head: str
    name: str
    args: tuple[str, ...]
    text: str
    data: bytes

    @property
    def first(self) -> int:
        """The line, from 0, that the call starts on."""
        return self.text[: self.text.index("y = ")].count("\n")


@st.composite
def calls(draw: st.DrawFn, *, with_x: bool) -> Call:
    positional = draw(st.lists(st.sampled_from(["a", "g(1, b=2)", "*c", "(1, 2)"]), max_size=3, unique=True))
    keywords = [f"{name}={name}" for name in draw(st.lists(st.sampled_from("klm"), max_size=3, unique=True))]
    keywords += ["x=g(\n  0)" if draw(st.booleans()) else "x=0"] if with_x else []
    args = [*positional, *draw(st.permutations(keywords)), *draw(st.sampled_from([[], ["**d"]]))]
    pieces = [draw(st.sampled_from(AFTER_COMMA))]
    for number, arg in enumerate(args):
        last = number == len(args) - 1
        comma = not last or draw(st.booleans())
        pieces += [arg, draw(st.sampled_from(BEFORE_COMMA)), "," if comma else "", draw(st.sampled_from(AFTER_COMMA))]
    inner = "".join(piece.replace("{n}", str(number)) for number, piece in enumerate(pieces))
    head, name = draw(st.sampled_from(SPELLINGS))
    indent = draw(st.sampled_from(["", "    ", "\t"]))
    before = "if z:\n" + indent if indent else ""
    text = (
        f"{head}\n# before\nw = 1  # w\n{before}y = {name}({inner}){draw(st.sampled_from(['', '  # y', '; v = 2']))}\n"
    )
    text += draw(st.sampled_from(["", f"{indent}u = [  # u\n    1]\n", "\n\n# end\n"]))
    return Call(head, name, tuple(args), text, draw(encodings(text)))


@st.composite
def encodings(draw: st.DrawFn, text: str) -> bytes:
    if draw(st.booleans()):
        text = text.rstrip("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    kind = draw(st.sampled_from(["plain", "bom", "latin-1"]))
    if kind == "latin-1":
        return b"# coding: latin-1\n# \xe9\n".replace(b"\n", b"\r\n" if "\r\n" in text else b"\n") + text.encode()
    return (b"\xef\xbb\xbf" if kind == "bom" else b"") + text.encode()


def comments(data: bytes) -> Counter[str]:
    tokens = tokenize.tokenize(io.BytesIO(data).readline)
    return Counter(token.string.strip() for token in tokens if token.type == tokenize.COMMENT)


def arguments(data: bytes) -> list[str]:
    """What the call of Request is given, as plain code."""
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "y":
            assert isinstance(node.value, ast.Call)
            given = [(arg.lineno, arg.col_offset, ast.unparse(arg)) for arg in node.value.args]
            given += [
                (
                    k.value.lineno,
                    k.value.col_offset,
                    f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}",
                )
                for k in node.value.keywords
            ]
            return [text for *_, text in sorted(given)]
    raise AssertionError(data)


def outside(data: bytes, after: bytes, call: Call) -> None:
    """Everything before the call's first line and after its last one is the same, byte for byte."""
    cookie = data.startswith(b"# coding")
    head = data.split(b"\n")[: call.first + 2 * cookie]
    assert after.split(b"\n")[: len(head)] == head
    tail_start = data.rindex(b")", 0, data.rindex(b"u = [") if b"u = [" in data else len(data))
    assert after.endswith(data[tail_start:])


def plain(arg: str) -> str:
    return ast.unparse(ast.parse(f"f({arg})").body[0])[2:-1]


def check(call: Call, rule: Rule, expected: list[str], lost: int) -> None:
    made = planned(call.data, rule)
    assert made.drifts == ()
    after = made.after[FILE]
    assert arguments(after) == expected
    outside(call.data, after, call)
    gone = comments(call.data) - comments(after)
    assert sum(gone.values()) <= lost
    assert all("own" not in text for text in gone)
    assert comments(after) - comments(call.data) == Counter()
    assert after.count(b"\r\n") == after.count(b"\n") or b"\r\n" not in call.data
    check_noop(after, rule)
    check_reversible(made)


@settings(max_examples=200)
@given(calls(with_x=False))
def test_adding(call: Call) -> None:
    check(call, ADD, [*map(plain, call.args), "x=f(1)"], lost=0)


@settings(max_examples=200)
@given(calls(with_x=True))
def test_removing(call: Call) -> None:
    # The comments beside the argument itself go with it; one on a line of its own never does.
    check(call, DROP, [plain(arg) for arg in call.args if not arg.startswith("x=")], lost=2)


@settings(max_examples=200)
@given(calls(with_x=True))
def test_replacing(call: Call) -> None:
    check(call, SET, ["x=f(1)" if arg.startswith("x=") else plain(arg) for arg in call.args], lost=0)


@settings(max_examples=100)
@given(calls(with_x=True))
def test_nothing_to_do(call: Call) -> None:
    check_noop(call.data, ADD)
    check_noop(planned(call.data, DROP).after[FILE], DROP)


@settings(max_examples=100)
@given(calls(with_x=False), st.sampled_from(["other", ".vllm"]))
def test_another_packages_request_is_left_alone(call: Call, package: str) -> None:
    if " as q" in call.head or call.head.startswith("import "):
        return
    source = call.data.replace(b"from vllm", f"from {package}".encode(), 1)
    assert source != call.data
    made = planned(source, ADD)
    assert made.drifts
    assert made.after == made.before


LINES = [
    "a()",
    "b()  # b",
    "# c",
    "",
    "if d:\n    a2()\n    # e\n    pass",
    "f(\n    1,  # g\n)",
    '"""h"""',
    "i = '''j\nk'''",
]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(LINES), max_size=4), st.lists(st.sampled_from(LINES), max_size=4), st.booleans(), st.data()
)
def test_statements_around_an_edit_keep_every_byte(
    before: list[str], after: list[str], nested: bool, data: st.DataObject
) -> None:
    rule, old, new = data.draw(
        st.sampled_from(
            [
                (replacing("x($A)", "z($A)"), "x(1)", "z(1)"),
                (replacing("x($A)", "z()\nz($A)"), "x(1)", "z()\nz(1)"),
                (replacing("x($A)\ny($B)", "z($A, $B)"), "x(1)\ny(2)", "z(1, 2)"),
                (
                    replacing("x($A)\n$$$R\ny($B)", "x($A)\nz()\n$$$R\ny($B)"),
                    "x(1)\nw()  # w\ny(2)",
                    "x(1)\nz()\nw()  # w\ny(2)",
                ),
            ]
        )
    )
    lines, wanted = ["\n".join([*before, middle, *after]) for middle in (old, new)]
    if nested:
        if any("'''" in text for text in (*before, *after)):
            return
        lines, wanted = (
            "if t:\n" + "\n".join(f"    {line}" if line else line for line in text.split("\n"))
            for text in (lines, wanted)
        )
    source = data.draw(encodings(lines + "\n"))
    made = planned(source, rule)
    assert made.drifts == ()
    eol = b"\r\n" if b"\r\n" in source else b"\n"
    expected = source.replace(
        old.replace("\n", "\n    " if nested else "\n").encode().replace(b"\n", eol),
        new.replace("\n", "\n    " if nested else "\n").encode().replace(b"\n", eol),
    )
    assert made.after[FILE] == expected
    check_noop(expected, rule)
    check_reversible(made)


def test_the_strategies_make_what_they_say() -> None:
    with pytest.raises(AssertionError):
        check_noop(b"from vllm.v1.request import Request\ny = Request(1)\n", ADD)

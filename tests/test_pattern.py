from __future__ import annotations

import libcst as cst
import pytest

from patcher.errors import RuleError
from patcher.meaning import digest
from patcher.pattern import compile_pattern, source_contains
from tests.helpers import captured, matches

REQUEST = ("vllm.v1.request.Request",)


@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        ("f(x)", "g(x)"),
        ("f(x)", "f(y)"),
        ("f(x)", "f(x, y)"),
        ("f(x)", "a.f(x)"),
        ("f(1)", "f(1.0)"),
        ("f('a')", "f(b'a')"),
        ("f('a')", "f(a)"),
        ("f($X)", "f()"),
        ("f($X)", "f(a=1)"),
        ("f($X)", "f(*a)"),
        ("f(a=$X)", "f(b=1)"),
        ("f($X, $X)", "f(1, 2)"),
        ("f($$$, x=1)", "f(x=2)"),
        ("f($$$, x=1)", "f(**x)"),
        ("a + b", "b + a"),
        ("a[$I]", "a.b"),
        ("x = $V", "x: int = 1"),
        ("x = $V", "x += 1"),
        ("x = 1\ny = 2", "x = 1\nz = 0\ny = 2"),
        ("def f(a):\n    $$$", "async def f(a):\n    pass"),
        ("def f(a):\n    $$$", "def f(b):\n    pass"),
        ("def f(a):\n    $$$", "def f(a, b):\n    pass"),
        ("def f(a, $$$, k):\n    $$$", "def f(a, b):\n    pass"),
        ("if a:\n    b", "if a:\n    b\nelse:\n    c"),
        ('f"{x}"', 'f"{x=}"'),
        ("f(x)", "class f(x): pass"),
        ("k", "f(k=1)"),
        ("k", "import k"),
        ("k", "a.k"),
        ("k", "def k(): pass"),
        ("k", "lambda k: 1"),
    ],
)
def test_does_not_match(pattern: str, source: str) -> None:
    assert matches(source + "\n", pattern) == []


@pytest.mark.parametrize(
    ("pattern", "source", "count"),
    [
        ("f(x)", "f(x)\ng(f( x ))", 2),
        ("f(x)", "f(\n    x,  # why\n)", 1),
        ("f(x)", "(f)((x))", 1),
        ("f('a')", 'f("a")', 1),
        ("f('ab')", "f('a' \"b\")", 1),
        ("f('a\\n')", 'f("""a\n""")', 1),
        ("f($_)", "f(f(1))", 2),
        ("f($_, $_)", "f(1, 2)", 1),
        ("f($X, $X)", "f(a.b, a . b)", 1),
        ("f($X, $X)", "f('a', \"a\")", 1),
        ("f(a=1, b=2)", "f(b=2, a=1)", 1),
        ("f($X, b=2)", "f(b=2, *a)\nf(1, b=2)", 1),
        ("f($$$)", "f()\nf(1)\nf(1, *a, b=2, **c)", 3),
        ("f($$$, x, $$$)", "f(a, b, x, c)\nf(x)\nf(a)", 2),
        ("f($$$, $LAST)", "f(1, 2)\nf()", 1),
        ("[$$$, 1]", "[1]\n[3, 2, 1]\n[1, 2]", 2),
        ("a[1:2]", "a[ 1 : 2 ]", 1),
        ("x.$METHOD()", "x.a()\nx.b()\ny.a()", 2),
        ("x = $V", "x = 1\nif a:\n    x = 2", 2),
        ("x = 1\n$$$\ny = 2", "x = 1\na\nb\ny = 2", 1),
        ("x = 1\ny = 2", "def f():\n    x = 1\n\n    # why\n    y = 2", 1),
        ("def f(a):\n    $$$", "@d\ndef f(a: int = 1) -> int:\n    return a", 1),
        ("def f($$$):\n    $$$", "def f():\n    pass\ndef f(a, *, b, **c):\n    pass", 2),
        ("def f(self, $$$, k):\n    $$$", "def f(self, a, k=1):\n    pass\ndef f(self, *, k: int):\n    pass", 2),
        ("class C:\n    $$$", "class C:\n    a = 1\n    b = 2", 1),
        ("if $C:\n    $$$\nelse:\n    $$$", "if a:\n    b\nelse:\n    c", 1),
        ('f"{x} y"', "f'{x} y'", 1),
        ("x", "x + a.x + f(x=1)", 1),
        ("while $C:\n    $$$", "while (\n    x := f()\n) > 0:\n    pass", 1),
    ],
)
def test_matches(pattern: str, source: str, count: int) -> None:
    assert len(matches(source + "\n", pattern)) == count


@pytest.mark.parametrize(
    ("pattern", "source", "expected"),
    [
        ("f(k=$Y, $$$REST)", "f(1, k=a + b, *c)", {"Y": "a + b", "REST": "1, *c"}),
        ("f($$$BEFORE, k=$_, $$$AFTER)", "f(1, a=2, k=3, b=4)", {"BEFORE": "1, a=2,", "AFTER": "b=4"}),
        ("f($$$BEFORE, k=$_, $$$AFTER)", "f(k=3)", {"BEFORE": "", "AFTER": ""}),
        ("$F(1)", "a.b(1)", {"F": "a.b"}),
        (
            "x = $V\n$$$REST\nreturn x",
            "def f():\n    x = 1\n    a()\n    b()\n    return x",
            {"V": "1", "REST": "a()\nb()"},
        ),
    ],
)
def test_captures(pattern: str, source: str, expected: dict[str, str]) -> None:
    found = captured(source + "\n", pattern)
    lines = {name: [line.strip() for line in text.strip().splitlines()] for name, text in found.items()}
    assert lines == {name: text.splitlines() for name, text in expected.items()}


@pytest.mark.parametrize(
    "source",
    [
        "from vllm.v1.request import Request\nRequest(1)",
        "from vllm.v1.request import Request as R\nR(1)",
        "from vllm.elsewhere import Request\nRequest(1)",
        "import vllm.v1.request as q\nq.Request(1)",
        "import vllm.v1.request\nvllm.v1.request.Request(1)",
        "from vllm.v1 import request\nrequest.Request(1)",
        "def f():\n    from vllm.v1.request import Request as R\n    R(1)",
        "try:\n    from vllm.v1.request import Request as R\nexcept ImportError:\n    pass\nR(1)",
        "Request(1)",  # of nowhere: a rule may be about to import it
    ],
)
def test_a_declared_name_matches_however_it_is_spelled(source: str) -> None:
    assert len(matches(source + "\n", "Request($_)", REQUEST)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from other import Request\nRequest(1)",
        "from .vllm import Request\nRequest(1)",
        "from . import Request\nRequest(1)",
        "import other as q\nq.Request(1)",
        "class Request: ...\nRequest(1)",
        "def Request(x): ...\nRequest(1)",
        "from vllm.v1.request import RequestStatus as Request\nRequest(1)",
        "from vllm.v1.request import Request as R\nself.R(1)",
        "self.Request(1)",
    ],
)
def test_another_thing_of_the_same_name_does_not_match(source: str) -> None:
    assert matches(source + "\n", "Request($_)", REQUEST) == []


def test_a_declared_name_is_no_attribute() -> None:
    source = "from vllm.v1.request import Request as R\nself.R(1)\nself.Request(1)\n"
    assert len(matches(source, "self.Request($_)", REQUEST)) == 1


def test_metavariables_in_strings_and_comments_are_text() -> None:
    assert len(matches("f('$X $$$Y *$$$')\nf('a')\n", "f('$X $$$Y *$$$')  # $X")) == 1


def test_sites_come_in_the_order_of_the_source() -> None:
    found = captured("f(1)\n", "f($X)")
    assert found == {"X": "1"}
    texts = [match.captures["X"] for match in matches("f(1)\ndef g(a=f(2)):\n    return f(f(3))\n", "f($X)")]
    values = [node.value if isinstance(node, cst.Integer) else "f(3)" for node in texts]
    assert values == ["1", "2", "f(3)", "3"]


@pytest.mark.parametrize("text", ["f(", "$x", "f(**$$$X)", "$", "def", "# only", "", "\n"])
def test_a_pattern_that_is_no_python_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        compile_pattern(text)


def test_source_contains() -> None:
    source = "class C:\n    def f(self):\n        return self.g(1)\n"
    assert source_contains(source, "self.g($_)")
    assert not source_contains(source, "self.h($_)")
    with pytest.raises(RuleError, match="does not parse"):
        source_contains("f(", "f()")


def test_a_pattern_cannot_blow_up() -> None:
    block = "".join(f"    a{n}\n" for n in range(120))
    source = f"if x:\n{block}" * 10
    pattern = "if x:\n" + "    $$$A\n    b\n    $$$B\n    c\n    $$$C\n    d\n"
    try:
        found = matches(source, pattern)
    except RuleError as error:
        assert "too long" in str(error)  # noqa: PT017
    else:
        assert found == []


def test_runs_inside_runs_are_cut_short() -> None:
    source = "".join(f"{'    ' * depth}if x:\n" + f"{'    ' * (depth + 1)}a\n" * 12 for depth in range(8))
    pattern = "".join(
        f"{'    ' * d}if x:\n{'    ' * (d + 1)}$$$\n{'    ' * (d + 1)}a\n{'    ' * (d + 1)}$$$\n" for d in range(8)
    )
    with pytest.raises(RuleError, match="too long"):
        matches(source, pattern + "    " * 8 + "never\n")


def test_a_digest_names_the_meaning_not_the_layout() -> None:
    def of(source: str) -> str:
        return digest(cst.parse_module(source).body)

    assert of("f(a, b='c')\n") == of('f(\n    (a),  # why\n    b="c",\n)\n')
    assert of("f(a)\n") != of("f(b)\n")
    assert of("f'{a}'\n") != of("f'{a=}'\n")
    assert of("f(a, b=1)\n") != of("f(b=1, a=1)\n")
    assert len(of("f()\n")) == 16

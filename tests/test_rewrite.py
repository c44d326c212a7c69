from __future__ import annotations

import pytest

from patcher.errors import RuleError
from tests.helpers import check_drifted, check_noop, check_transformed, inserting, planned, replacing

ADD = replacing("f($$$ARGS)", "f($$$ARGS, x=1)", unless="f($$$, x=$_, $$$)")
DROP = replacing("f($$$BEFORE, x=$_, $$$AFTER)", "f($$$BEFORE, $$$AFTER)")
SET = replacing("f($$$BEFORE, x=$_, $$$AFTER)", "f($$$BEFORE, x=2, $$$AFTER)", unless="f($$$, x=2, $$$)")
FIRST = replacing("f($$$ARGS)", "f(0, $$$ARGS)", unless="f(0, $$$)")


@pytest.mark.parametrize(
    "source", ["f(x=1)\n", "f(a, x=2)\n", "f(\n    x=1,  # why\n)\n", "f(**{}, x=3)\n", "g(f(x=1), f=2)\n"]
)
def test_an_argument_that_is_there_is_not_added(source: str) -> None:
    check_noop(source, ADD)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f()\n", "f(x=1)\n"),
        ("f( )\n", "f( x=1)\n"),
        ("f(a)\n", "f(a, x=1)\n"),
        ("f(a,)\n", "f(a, x=1,)\n"),
        ("f(a, b )\n", "f(a, b, x=1 )\n"),
        ("f(*a)\n", "f(*a, x=1)\n"),
        ("f(**k)\n", "f(**k, x=1)\n"),
        ("f(a, **k,)\n", "f(a, **k, x=1,)\n"),
        ("(f)(a)\n", "(f)(a, x=1)\n"),
        ("y = (f(a))  # why\n", "y = (f(a, x=1))  # why\n"),
        ("f(\n    a,\n)\n", "f(\n    a,\n    x=1,\n)\n"),
        ("f(\n    a\n)\n", "f(\n    a,\n    x=1\n)\n"),
        ("f(\n    a, b\n)\n", "f(\n    a, b,\n    x=1\n)\n"),
        ("f(a,\n  b)\n", "f(a,\n  b,\n  x=1)\n"),
        ("f(a,\n  b,\n  )\n", "f(a,\n  b,\n  x=1,\n  )\n"),
        ("f(a, b,\n  c, d)\n", "f(a, b,\n  c, d,\n  x=1)\n"),
        ("f(\n    a,  # why\n)\n", "f(\n    a,  # why\n    x=1,\n)\n"),
        ("f(\n    a  # why\n)\n", "f(\n    a,  # why\n    x=1\n)\n"),
        ("f(  # why\n    a,\n)\n", "f(  # why\n    a,\n    x=1,\n)\n"),
        ("f(\n    # above\n    a,\n    # below\n)\n", "f(\n    # above\n    a,\n    # below\n    x=1,\n)\n"),
        ("f(\n    a,\n\n    b,\n)\n", "f(\n    a,\n\n    b,\n    x=1,\n)\n"),
        ("f(\n    a,\n    **k  # why\n)\n", "f(\n    a,\n    **k,  # why\n    x=1\n)\n"),
        ("f(a  # why\n  )\n", "f(a,  # why\n  x=1\n  )\n"),
        ("if a:\n\tf(\n\t\ta,\n\t)\n", "if a:\n\tf(\n\t\ta,\n\t\tx=1,\n\t)\n"),
        ("f(  # nothing yet\n)\n", "f(  # nothing yet\nx=1)\n"),
        ("f(a)(b)\n", "f(a, x=1)(b)\n"),
        ("g(f(a), b)\n", "g(f(a, x=1), b)\n"),
    ],
)
def test_an_added_argument_looks_like_its_neighbours(source: str, expected: str) -> None:
    check_transformed(source, expected, ADD)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f(x=1)\n", "f()\n"),
        ("f(x=1,)\n", "f()\n"),
        ("f(a, x=1)\n", "f(a)\n"),
        ("f(x=1, a=2)\n", "f(a=2)\n"),
        ("f(a, x=1, **k)\n", "f(a, **k)\n"),
        ("f(a, x=1,)\n", "f(a,)\n"),
        ("f(\n    a,\n    x=1,\n)\n", "f(\n    a,\n)\n"),
        ("f(\n    a,\n    x=1\n)\n", "f(\n    a\n)\n"),
        ("f(\n    x=1,\n    a=2,\n)\n", "f(\n    a=2,\n)\n"),
        ("f(a,\n  x=1)\n", "f(a)\n"),
        ("f(a,\n  x=1,\n  b=2)\n", "f(a,\n  b=2)\n"),
        ("f(\n    a,  # a\n    x=1,  # x\n    b=2,  # b\n)\n", "f(\n    a,  # a\n    b=2,  # b\n)\n"),
        ("f(\n    a,  # a\n    x=1,  # x\n)\n", "f(\n    a,  # a\n)\n"),
        ("f(\n    a,  # a\n    x=1  # x\n)\n", "f(\n    a  # a\n)\n"),
        ("f(\n    x=1,  # x\n    b=2,  # b\n)\n", "f(\n    b=2,  # b\n)\n"),
        (
            "f(\n    a,\n    # of x\n    x=1,\n    # of b\n    b=2,\n)\n",
            "f(\n    a,\n    # of x\n    # of b\n    b=2,\n)\n",
        ),
        ("f(\n    # of x\n    x=1,\n    # of b\n    b=2,\n)\n", "f(\n    # of x\n    # of b\n    b=2,\n)\n"),
        ("f(\n    a,\n    # of x\n    x=1,\n    # end\n)\n", "f(\n    a,\n    # of x\n    # end\n)\n"),
        ("f(\n    # of x\n    x=1,\n)\n", "f(\n    # of x\n)\n"),
        ("f(a, x=1,  # both\n  b=2)\n", "f(a,  # both\n  b=2)\n"),
        ("f(\n    a, x=1,\n    b=2,\n)\n", "f(\n    a,\n    b=2,\n)\n"),
    ],
)
def test_a_removed_argument_takes_its_own_line_and_no_other(source: str, expected: str) -> None:
    check_transformed(source, expected, DROP)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f(x=1)\n", "f(x=2)\n"),
        ("f(x = 1 , a=2)\n", "f(x = 2 , a=2)\n"),
        (
            "f(\n    a,  # a\n    x=g(\n        1\n    ),  # x\n    b=2\n)\n",
            "f(\n    a,  # a\n    x=2,  # x\n    b=2\n)\n",
        ),
        ("f(a, x=1,  # x\n  **k)\n", "f(a, x=2,  # x\n  **k)\n"),
    ],
)
def test_a_replaced_value_stays_in_its_place(source: str, expected: str) -> None:
    check_transformed(source, expected, SET)


def test_an_argument_put_first() -> None:
    check_transformed("f(\n    # of a\n    a,  # a\n)\n", "f(\n    # of a\n    0,\n    a,  # a\n)\n", FIRST)
    check_transformed("f(a)\n", "f(0, a)\n", FIRST)


def test_a_keyword_after_double_star_is_legal_and_a_positional_one_is_told() -> None:
    check_transformed("f(**k)\n", "f(**k, x=1)\n", ADD)
    with pytest.raises(RuleError, match="does not make Python"):
        planned("f(**k)\n", replacing("f($$$A)", "f($$$A, 1)", unless="f($$$, 1)"))


def test_arguments_written_out_keep_the_layout_of_the_call() -> None:
    rule = replacing("f(a=$A, b=$B)", "f(a=$A, b=$B, c=$A)")
    check_transformed(
        "f(\n    b=2,  # two\n    a=1,  # one\n)\n", "f(\n    a=1,  # one\n    b=2,  # two\n    c=1,\n)\n", rule
    )
    check_transformed("f( 1 )\n", "f( 1, k=1 )\n", replacing("f($A)", "f($A, k=$A)"))
    check_transformed("f(a=1)\n", "f(b=1)\n", replacing("f(a=$A)", "f(b=$A)"))


def test_the_file_spells_a_declared_name() -> None:
    names = ["vllm.v1.request.Request"]
    rule = replacing("Request($$$A)", "Request($$$A, k=Request)", unless="Request($$$, k=$_)", names=names)
    for head, name in [
        ("from vllm.v1.request import Request", "Request"),
        ("from vllm.v1.request import Request as R", "R"),
        ("from vllm.elsewhere import Request as R", "R"),
        ("import vllm.v1.request as q", "q.Request"),
        ("import vllm.v1.request", "vllm.v1.request.Request"),
    ]:
        check_transformed(f"{head}\n{name}(1)\n", f"{head}\n{name}(1, k={name})\n", rule)
    check_drifted("from other import Request\nRequest(1)\n", rule)


def test_an_insertion_spells_a_declared_name_as_the_file_does() -> None:
    rule = inserting("g(h())", after="f()", names=["vllm.g"])
    check_transformed("from vllm import g as gg\nf()\n", "from vllm import g as gg\nf()\ngg(h())\n", rule)


def test_precedence_is_kept_or_told() -> None:
    check_transformed("x = f(a + b)\n", "x = (a + b) * 2\n", replacing("f($X)", "($X) * 2"))
    with pytest.raises(RuleError, match="reads another way"):
        planned("x = f(a + b)\n", replacing("f($X)", "$X * 2"))
    with pytest.raises(RuleError, match="reads another way"):
        planned("x = f(a) * 3\n", replacing("f($X)", "$X + 2"))
    check_transformed("x = (f(a)) * 3\n", "x = (a + 2) * 3\n", replacing("f($X)", "$X + 2"))


def test_every_place_that_is_counted_changes() -> None:
    rule = replacing("f($X)", "g($X)", count=2)
    check_transformed("f(1)\nh(f(2))  # why\n", "g(1)\nh(g(2))  # why\n", rule)
    check_transformed("g(1)\nf(2)\n", "g(1)\ng(2)\n", rule)
    check_noop("g(1)\ng(2)\n", rule)
    assert "found 1 to change and 0 done" in check_drifted("f(1)\n", rule)


# Statements

BLOCK = '''\
def f():
    """Doc.

    More.
    """
    a()  # of a

    # above b
    b()  # of b
    # above c
    c()

    # end
'''


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        (inserting("x()", after="a()"), "a()  # of a\n", "a()  # of a\n    x()\n"),
        (inserting("x()", before="b()"), "\n    # above b\n", "    x()\n\n    # above b\n"),
        (inserting("\n# of x\nx(1)\n", after="a()"), "a()  # of a\n", "a()  # of a\n\n    # of x\n    x(1)\n"),
        (inserting("if x:\n    y()", after="c()"), "c()\n", "c()\n    if x:\n        y()\n"),
        (inserting("x('''\na\n''')", after="c()"), "c()\n", "c()\n    x('''\na\n''')\n"),
        (replacing("b()", "x()"), "b()  # of b", "x()  # of b"),
        (replacing("b()", "# new\nx()\ny()"), "    # above b\n    b()  # of b\n", "    # new\n    x()\n    y()\n"),
        (replacing("b()", "x()\ny()"), "    b()  # of b\n", "    x()\n    y()\n"),
        (replacing("b()\nc()", "b()\nx()\nc()"), "# of b\n", "# of b\n    x()\n"),
        (replacing("b()\nc()", "x()\nb()\nc()"), "b()  # of b\n", "x()\n    b()  # of b\n"),
        (
            replacing("b()\nc()", "if d:\n    b()\nc()", unless="if d:\n    b()"),
            "    b()  # of b\n",
            "    if d:\n        b()\n",
        ),
        (replacing("b()", "", unless="a()\nc()"), "\n    # above b\n    b()  # of b\n", "\n"),
        (replacing("b()\nc()", "c()"), "    # above b\n    b()  # of b\n", ""),
        (replacing("a()\nb()\nc()", "a()\nc()"), "\n    # above b\n    b()  # of b\n", ""),
    ],
)
def test_statements(rule: object, old: str, new: str) -> None:
    assert BLOCK.count(old) == 1
    check_transformed(BLOCK, BLOCK.replace(old, new), rule)  # type: ignore[arg-type]


def test_a_comment_set_apart_by_a_blank_line_survives_a_deletion() -> None:
    rule = replacing("a()", "", unless="pass")
    check_transformed("if x:\n    # apart\n\n    # of a\n    a()\n", "if x:\n    # apart\n\n    pass\n", rule)
    rule = replacing("a()", "", unless="z()\nb()")
    check_transformed("z()\n# apart\n\n# of a\na()\nb()\n", "z()\n# apart\n\nb()\n", rule)
    rule = replacing("z()\na()", "z()")
    check_transformed("if x:\n    z()\n    # apart\n\n    # of a\n    a()\n", "if x:\n    z()\n    # apart\n\n", rule)


def test_a_block_keeps_what_the_fix_repeats() -> None:
    source = """\
while (
    x := f()  # of x
) > 0:  # of the loop
    # above a
    a()  # of a

    if y:  # of y
        b()  # of b
    c()  # of c
    # end of the loop
d()
"""
    rule = replacing(
        "while $C:\n    a()\n    if y:\n        b()\n    $$$REST",
        "while $C:\n    a()\n    if y:\n        b()\n        more()\n    $$$REST",
    )
    check_transformed(source, source.replace("# of b\n", "# of b\n        more()\n"), rule)


def test_a_statement_keeps_the_layout_of_what_the_fix_does_not_change() -> None:
    source = """\
x.append(
    {
        "a": one,  # of a
        # above b
        "b": f(  # of f
            2,  # of 2
        ),  # of b
        "c": None,  # of c
    }
)  # end
"""
    rule = replacing('x.append({"a": $A, "b": $B, "c": None})', 'x.append({"a": 1 + 1, "b": $B, "c": None})\ny()')
    check_transformed(source, source.replace("one,  # of a", "1 + 1,  # of a") + "y()\n", rule)
    rule = replacing("x = not (a)\ny()", "x = not b\ny()")
    check_transformed("x = not(a)  # why\ny()  # why\n", "x = not(b)\ny()  # why\n", rule)
    rule = replacing("f($A, k=[$B, 2])", "f($A, k=[1 + 1, 2])")
    check_transformed("f(a, k=[\n    one,\n    2,  # why\n])\n", "f(a, k=[\n    1 + 1,\n    2,  # why\n])\n", rule)


def test_a_function_keeps_what_the_fix_does_not_write_out() -> None:
    source = """\
class C:
    # above f
    @decorated
    def f(  # of f
        self,
        a: int = 1,  # of a
        # end of parameters
    ) -> int:  # noqa: of f
        # above return
        return a
        # end of f
"""
    rule = replacing("def f(self, $$$P):\n    $$$BODY", "def f(self, $$$P, x: int = 2):\n    g(x)\n    $$$BODY")
    expected = source.replace("    # end of parameters\n", "    # end of parameters\n        x: int = 2,\n")
    check_transformed(
        source, expected.replace("        # above return\n", "        g(x)\n        # above return\n"), rule
    )


@pytest.mark.parametrize("own", ["", "    @other\n", "    # why\n    @other(1)\n"])
def test_a_function_takes_a_decorator_of_the_fix_above_its_own(own: str) -> None:
    source = f"class C:\n    a = 1\n\n{own}    def f(self, a):  # f\n        # in f\n        return a\n\n    b = 2\n"
    rule = replacing(
        "def f(self, $$$P):\n    $$$BODY",
        "@d\ndef f(self, $$$P):\n    $$$BODY",
        unless=["@d\ndef f(self, $$$):\n    $$$", "@d\n@$_\ndef f(self, $$$):\n    $$$"],
    )
    head, _, call = own.rpartition("    @")
    expected = (
        source.replace(own, f"{head}    @d\n    @{call}") if own else source.replace("    def", "    @d\n    def")
    )
    check_transformed(source, expected, rule)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("()", "(x=0)"),
        ("(a)", "(a, x=0)"),
        ("(a,)", "(a, x=0,)"),
        ("(a, *b)", "(a, *b, x=0)"),
        ("(a, *, b)", "(a, *, b, x=0)"),
        ("(a, **k)", "(a, x=0, **k)"),
        ("(a, *b, **k)", "(a, *b, x=0, **k)"),
        ("(a, /)", "(a, /, x=0)"),
        ("(\n    a,  # of a\n)", "(\n    a,  # of a\n    x=0,\n)"),
        ("(\n    a  # of a\n)", "(\n    a,  # of a\n    x=0\n)"),
        ("(\n    a,\n    **k,  # of k\n)", "(\n    a,\n    x=0,\n    **k,  # of k\n)"),
        ("(a,\n      b)", "(a,\n      b,\n      x=0)"),
    ],
)
def test_an_added_parameter(source: str, expected: str) -> None:
    rule = replacing("def f($$$P):\n    $$$BODY", "def f($$$P, x=0):\n    $$$BODY", unless="def f($$$, x):\n    $$$")
    check_transformed(f"def f{source}:\n    pass\n", f"def f{expected}:\n    pass\n", rule)


def test_a_docstring_moves_in_with_its_function() -> None:
    rule = inserting('def g(self):\n    """Doc.\n\n    More.\n    """\n', after="def f(self):\n    $$$")
    check_transformed(
        "class C:\n    def f(self):\n        pass\n",
        'class C:\n    def f(self):\n        pass\n    def g(self):\n        """Doc.\n\n        More.\n        """\n',
        rule,
    )


def test_a_captured_docstring_stays_where_it_is() -> None:
    source = 'class C:\n    def f(self):\n        """Doc.\n\n        More.\n        """\n        return 1\n'
    rule = replacing("def f(self):\n    $$$BODY\n    return 1", "def f(self):\n    $$$BODY\n    return 2")
    check_transformed(source, source.replace("return 1", "return 2"), rule)


def test_cases_go_from_the_special_to_the_general() -> None:
    case = [
        {"pattern": "if $C:\n    x = 1", "fix": "x = 2"},
        {"pattern": "x = 1", "fix": "x = 2"},
    ]
    from tests.helpers import make_rule

    rule = make_rule(edit=[{"case": case}])
    check_transformed("if a:\n    x = 1\n", "x = 2\n", rule)
    check_transformed("x = 1\n", "x = 2\n", rule)
    check_noop("x = 2\n", rule)
    check_drifted("x = 1\nx = 1\n", rule)


def test_the_first_anchor_that_is_there_counts() -> None:
    rule = inserting("x()", after=["b()", "a()"])
    check_transformed("a()\nb()\n", "a()\nb()\nx()\n", rule)
    check_transformed("a()\nc()\n", "a()\nx()\nc()\n", rule)
    check_drifted("c()\n", rule)


def test_elements_of_a_list() -> None:
    check_transformed("x = [1, 2]  # why\n", "x = [0, 1, 2]  # why\n", replacing("[1, $$$REST]", "[0, 1, $$$REST]"))


# Bytes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"f(a)\r\n", b"f(a, x=1)\r\n"),
        (b"f(\r\n    a,\r\n)\r\ny = 1\r\n", b"f(\r\n    a,\r\n    x=1,\r\n)\r\ny = 1\r\n"),
        (b"\xef\xbb\xbff(a)\n", b"\xef\xbb\xbff(a, x=1)\n"),
        (b"\xef\xbb\xbf\r\nf(a)\r\n", b"\xef\xbb\xbf\r\nf(a, x=1)\r\n"),
        (b"# coding: latin-1\ny = '\xe9'\nf(a)  # \xe9\n", b"# coding: latin-1\ny = '\xe9'\nf(a, x=1)  # \xe9\n"),
        ("y = 'é'\nf(a)  # ü\n".encode(), "y = 'é'\nf(a, x=1)  # ü\n".encode()),
        (b"f(a)", b"f(a, x=1)"),
        (b"y = 1\nf(a)  # why", b"y = 1\nf(a, x=1)  # why"),
        (b"y = 1\n\x0c\nf(a)\n", b"y = 1\n\x0c\nf(a, x=1)\n"),
        (b"if y:\n\tf(a)\n\n\n", b"if y:\n\tf(a, x=1)\n\n\n"),
        (b"y = 1   \nf(a)\t\nz = 2 \n", b"y = 1   \nf(a, x=1)\t\nz = 2 \n"),
        (b"y = 1; f(a); z = 2\n", b"y = 1; f(a, x=1); z = 2\n"),
        (b"if y: f(a)\n", b"if y: f(a, x=1)\n"),
        (b"f(a, \\\n  b)\n", b"f(a, \\\n  b, x=1)\n"),
        (b"y = 1\r\nf(a)\nz = 2\n", b"y = 1\r\nf(a, x=1)\nz = 2\n"),
    ],
)
def test_every_byte_outside_the_edit_stays(source: bytes, expected: bytes) -> None:
    check_transformed(source, expected, ADD)


def test_new_lines_end_as_the_files_lines_do() -> None:
    rule = inserting('if x:\n    """Doc.\n\n    More."""\n    f"""a\n{b}\n"""', after="a()")
    made = planned(b"a()\r\nb()\r\n", rule)
    (after,) = made.after.values()
    assert after.count(b"\r\n") == after.count(b"\n") == 9
    check_transformed(b"if y:\n\ta()\n", b"if y:\n\ta()\n\tif x:\n\t\ty()\n", inserting("if x:\n    y()", after="a()"))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"f(a\n", "does not parse"),
        (b"f(a)\nreturn 1\n", "does not parse"),
        (b"f(a)\n\x00\n", "does not parse"),
        (b"# coding: no-such\nf(a)\n", "does not parse"),
        (b"f(a)  # \xff\n", "does not parse"),
        (b"f(" * 5000 + b")" * 5000 + b"\n", "does not parse"),
        (b"f(a)\n" + b"f(" * 60 + b")" * 60 + b"\n", "nested deeper"),
        (b"x = 1\n" * 400_000, "larger than"),
        (b"x = [1, 2, 3]\n" * 40_000, "too much code"),
    ],
    ids=range(9),
)
def test_a_file_that_can_not_be_read_is_drifted(source: bytes, reason: str) -> None:
    assert reason in check_drifted(source, ADD)


@pytest.mark.parametrize("source", [b"f(a)\n\n    ", b"if x:\n    f(a)\n\n    ", b"f(a)\n\n\t", b"\x0cf(a)\n"])
def test_a_file_that_libcst_does_not_give_back_is_drifted(source: bytes) -> None:
    import libcst as cst

    if cst.parse_module(source).bytes == source:  # a later LibCST: then the file is as good as any
        assert planned(source, ADD).after != planned(source, ADD).before
    else:
        assert "byte for byte" in check_drifted(source, ADD)
    whole = source.strip() + b"\n"
    check_transformed(whole, whole.replace(b"a)", b"a, x=1)"), ADD)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (replacing("f($X)", "g($X)\nx()", unless="never()"), "does not know its own result"),
        (inserting("x()", after="f($_)", unless="never()"), "does not know its own result"),
        (replacing("f($X)", "", unless="never()"), "does not know its own result"),
        (replacing("y = f($X)", "y = 1\nreturn"), "does not compile"),
        (replacing("f($X)", "x = 1"), "is not one expression"),
        (replacing("f($X)", "f(a, $X=1)"), "can't stand there"),
        (replacing("def g($$$P):\n    $$$B", "def g(new, $$$P):\n    $$$B"), "after the run only"),
        (replacing("y = [$$$X]", "y = f($$$X)"), "can't stand where"),
    ],
)
def test_a_rule_that_is_wrong_in_itself_is_no_drift(rule: object, message: str) -> None:
    source = (
        "def g(a):\n    pass\ny = [1]\n" if message in {"after the run only", "can't stand where"} else "y = f(a)\n"
    )
    source = "f(a)\n" if message.startswith("does not know") else source
    with pytest.raises(RuleError, match=message) as caught:
        planned(source, rule)  # type: ignore[arg-type]
    assert caught.value.rule == "a-rule" or message == "does not compile"

from __future__ import annotations

import pytest

from patcher import plan
from patcher.errors import RuleError
from tests.helpers import (
    FILE,
    NO,
    YES,
    check_drifted,
    check_noop,
    check_transformed,
    importing,
    inserting,
    make_rule,
    planned,
    replacing,
)

RENAME = replacing("f($X)", "g($X)")
SOURCE = "import os\n\ndef a():\n    return f(1)\n\ndef b():\n    return 2\n"


def test_outcomes() -> None:
    rules = [
        make_rule("advises", advice="Use another"),
        make_rule("applies", edit=[{"pattern": "f($X)", "fix": "g($X)"}]),
        make_rule("not-asked", edit=[{"pattern": "f($X)", "fix": "g($X)"}], when={"not": {"symbol": "vllm.a"}}),
        make_rule("parts-not-asked", edit=[{"pattern": "h()", "fix": "i()", "when": {"not": {"symbol": "vllm.a"}}}]),
        make_rule("satisfied", edit=[{"pattern": "return 1", "fix": "return 2"}]),
    ]
    made = planned(SOURCE, rules)
    states = {outcome.rule.id: outcome.state for outcome in made.outcomes}
    assert states == {
        "advises": "advice",
        "applies": "applies",
        "not-asked": "not-needed",
        "parts-not-asked": "not-needed",
        "satisfied": "satisfied",
    }
    assert made.changed == (FILE,)
    assert [outcome.files for outcome in made.outcomes if outcome.files] == [(FILE,)]
    assert made.drifts == ()


def test_a_probe_decides() -> None:
    rule = make_rule(edit=[{"pattern": "f($X)", "fix": "g($X)"}], when={"symbol": "vllm.a"})
    check_transformed(SOURCE, SOURCE.replace("f(1)", "g(1)"), rule, YES)
    check_noop(SOURCE, rule, NO)
    either = make_rule(
        edit=[
            {"pattern": "f($X)", "fix": "g($X)", "when": {"symbol": "vllm.a"}},
            {"pattern": "f($X)", "fix": "h($X)", "when": {"not": {"symbol": "vllm.a"}}},
        ]
    )
    check_transformed(SOURCE, SOURCE.replace("f(1)", "g(1)"), either, YES)
    check_transformed(SOURCE, SOURCE.replace("f(1)", "h(1)"), either, NO)


def test_a_scope_keeps_other_places_out() -> None:
    rule = replacing("return $X", "return g($X)", inside="b", unless="return g($_)")
    check_transformed(SOURCE, SOURCE.replace("return 2", "return g(2)"), rule)
    check_drifted(SOURCE, replacing("return $X", "return g($X)", unless="return g($_)"))
    source = "class C:\n    def f(self):\n        a()\n    class D:\n        def f(self):\n            a()\n"
    check_transformed(
        source,
        source.replace("        a()\n    class", "        b()\n    class"),
        replacing("a()", "b()", inside="C.f"),
    )
    check_transformed(
        source, source.replace("            a()", "            b()"), replacing("a()", "b()", inside="C.D.f")
    )


# Drift


def test_none_where_one_is_expected_names_the_nearest() -> None:
    report = check_drifted("x = 1\n\ny = fff(1, b=2)\n", replacing("ff(1, b=$X)", "g($X)"))
    assert report.splitlines() == [
        "a-rule: expected 1 place(s), found 0 to change and 0 done",
        f"  where:    {FILE}",
        "  expected: ff(1, b=$X)",
        "  nearest:  3: fff(1, b=2)",
    ]


def test_two_where_one_is_expected_names_both() -> None:
    report = check_drifted("f(1)\n\nif x:\n    y = f(2)\n", RENAME)
    assert report.splitlines() == [
        "a-rule: expected 1 place(s), found 2 to change and 0 done",
        f"  where:    {FILE}",
        "  expected: f($X)",
        "  found:    1: f(1)",
        "            4: f(2)",
    ]


def test_one_done_and_one_more_is_told() -> None:
    report = check_drifted("f(1)\ng(2)\n", RENAME)
    assert "found 1 to change and 1 done" in report
    assert "1: f(1)" in report
    assert "2: g(2)" in report


def test_a_result_that_stands_twice_is_told() -> None:
    assert "found 0 to change and 2 done" in check_drifted("g(1)\ng(2)\n", RENAME)
    assert "found 0 to change and 2 done" in check_drifted("a()\nx()\nx()\n", inserting("x()", after="a()"))


def test_lines_are_those_of_the_file_as_it_is() -> None:
    first = make_rule(
        "a-first", imports=[{"add": ["vllm.a", "vllm.b", "sys"]}], edit=[{"pattern": "p()", "fix": "q()\nr()"}]
    )
    then = make_rule("b-then", edit=[{"pattern": "f($X)", "fix": "g($X)"}])
    made = planned("import os\np()\nf(\n    1\n)\nf(2)\n", [first, then])
    report = "\n".join(str(found) for found in made.drifts)
    assert "3: f(" in report
    assert "6: f(2)" in report


@pytest.mark.parametrize(
    ("source", "inside", "message"),
    [
        ("class D:\n    def f(self):\n        g(1)\n", "C.f", "C.f is not there"),
        ("class C:\n    def ff(self):\n        g(1)\n", "C.f", "2: ff"),
        ("class C:\n    f = 1\n", "C.f", "C.f is not there"),
        ("class C:\n    def f(self): ...\n    def f(self):\n        f(1)\n", "C.f", "C.f is there 2 times"),
        ("class C: ...\nclass C:\n    def f(self):\n        f(1)\n", "C", "C is there 2 times"),
        ("def f():\n    pass\nf(1)\n", "f", "found 0 to change"),
    ],
)
def test_a_scope_that_is_missing_or_double(source: str, inside: str, message: str) -> None:
    assert message in check_drifted(source, replacing("f($X)", "g($X)", inside=inside))


def test_code_that_the_rule_does_not_know() -> None:
    pattern = "def a():\n    $$$BODY"
    fix = "def a():\n    new()"
    unknown = replacing(pattern, fix, known={"BODY": ["0" * 16]})
    report = check_drifted(SOURCE, unknown)
    assert "$BODY is not the code that the rule knows" in report
    assert "3: def a():" in report
    digest = report.split("its digest is ")[1][:16]
    known = replacing(pattern, fix, known={"BODY": ["1" * 16, digest]})
    check_transformed(SOURCE, SOURCE.replace("return f(1)", "new()"), known)
    for same in (SOURCE.replace("f(1)", "f( 1 )"), SOURCE.replace("    return f(1)", "    # why\n    return (f(1))")):
        assert planned(same, known).drifts == ()
    for other in (SOURCE.replace("f(1)", "f(2)"), SOURCE.replace("return f(1)", "pass\n    return f(1)")):
        assert "is not the code" in check_drifted(other, known)


def test_a_drifted_rule_leaves_no_trace_and_others_are_still_planned() -> None:
    half = make_rule("half", edit=[{"pattern": "f($X)", "fix": "g($X)"}, {"pattern": "missing()", "fix": "there()"}])
    other = make_rule("other", edit=[{"pattern": "return 2", "fix": "return 3"}])
    made = planned(SOURCE, [half, other])
    assert [outcome.state for outcome in made.outcomes] == ["drifted", "applies"]
    assert made.after[FILE].decode() == SOURCE.replace("return 2", "return 3")
    assert len(made.drifts) == 1


def test_every_drift_of_a_rule_is_told() -> None:
    rule = make_rule(edit=[{"pattern": "one()", "fix": "x()"}, {"pattern": "two()", "fix": "x()"}])
    assert len(planned(SOURCE, rule).drifts) == 2


def test_a_file_that_is_not_there() -> None:
    rule = make_rule(edit=[{"pattern": "f($X)", "fix": "g($X)", "file": "speculators/other.py"}])
    assert "the file is not there" in check_drifted(SOURCE, rule)


def test_a_file_that_does_not_parse_is_every_rules_drift() -> None:
    rules = [RENAME, make_rule("b-rule", imports=[{"add": ["vllm.a"]}]), make_rule("c-rule", advice="Do it")]
    made = planned("f(\n", rules)
    assert [outcome.state for outcome in made.outcomes] == ["drifted", "drifted", "advice"]
    assert "b-rule: the file does not parse (line 1" in str(made.drifts[1])


def test_two_files() -> None:
    other = "speculators/other.py"
    rule = make_rule(edit=[{"pattern": "f($X)", "fix": "g($X)"}, {"pattern": "f($X)", "fix": "h($X)", "file": other}])
    files = {FILE: b"f(1)\n", other: b"f(2)\n", "speculators/third.py": b"f(3)\n"}
    made = plan.make(files, [rule], YES)
    assert made.after == {FILE: b"g(1)\n", other: b"h(2)\n", "speculators/third.py": b"f(3)\n"}
    assert made.changed == (other, FILE)
    assert made.before == files


# The plan itself


def test_the_same_input_gives_the_same_plan() -> None:
    assert planned(SOURCE, RENAME) == planned(SOURCE, RENAME)
    assert planned(SOURCE, RENAME).after != planned(SOURCE, RENAME, NO).before


def test_rules_that_undo_each_other_are_told() -> None:
    rules = [
        make_rule("a", edit=[{"pattern": "f($X)", "fix": "g($X)"}]),
        make_rule("b", edit=[{"pattern": "g($X)", "fix": "f($X)"}]),
    ]
    with pytest.raises(RuleError, match="does not know its own result") as caught:
        planned("f(1)\n", rules)
    assert caught.value.exit_code == 2


def test_a_rule_may_build_on_another() -> None:
    rules = [
        make_rule("a", imports=[{"add": ["vllm.h"]}], edit=[{"insert": "y = h()", "after": "f($_)"}]),
        make_rule("b", needs=["a"], edit=[{"pattern": "y = h()", "fix": "y = h(1)"}]),
    ]
    with pytest.raises(RuleError, match="own result"):  # the first has to know what the second makes of it
        planned("f(1)\n", rules)
    rules[0] = make_rule(
        "a", imports=[{"add": ["vllm.h"]}], edit=[{"insert": "y = h()", "after": "f($_)", "unless": "y = h($$$)"}]
    )
    check_transformed("f(1)\n", "from vllm import h\nf(1)\ny = h(1)\n", rules)


def test_an_unused_import_goes_only_with_its_last_use() -> None:
    drop = make_rule("a", imports=[{"remove": ["os"]}], edit=[{"pattern": "os.a()", "fix": "a()"}])
    check_transformed("import os\nos.a()\n", "a()\n", drop)
    check_transformed("import os\nos.a()\nos.b()\n", "import os\na()\nos.b()\n", drop)


def test_a_wrong_rule_is_named() -> None:
    with pytest.raises(RuleError) as caught:
        planned("x = f(1)\n", make_rule("the-one", edit=[{"pattern": "f($X)", "fix": "a = 1"}]))
    assert caught.value.rule == "the-one"


def test_a_warning_of_the_source_is_no_error() -> None:
    check_transformed("x = '\\d' is y\nf('\\d')\n", "x = '\\d' is y\ng('\\d')\n", RENAME)


def test_importing_alone() -> None:
    check_transformed("x = 1\n", "import os\nx = 1\n", importing(add=["os"]))

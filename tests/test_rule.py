from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patcher import plan, rule
from patcher.errors import PatchError, RuleError
from patcher.probe import holds
from patcher.rule import Probe, Rule
from tests.helpers import FILE, YES, Answers, check_noop, check_reversible, make_rule, replacing, rule_text, toml

EDIT = {"pattern": "f($X)", "fix": "g($X)"}
TOP = b"title = 't'\nwhy = 'w'\nsymptom = 's'\n"


def problem(text: bytes) -> str:
    """What a rule file is told off for: always with file and rule."""
    with pytest.raises(RuleError) as caught:
        rule.parse(text, "a-rule", "folder/a-rule.toml")
    assert caught.value.where == "folder/a-rule.toml"
    assert caught.value.rule == "a-rule"
    assert caught.value.exit_code == 2
    return caught.value.found or ""


def test_a_sound_rule_loads() -> None:
    loaded = make_rule(edit=[EDIT], links=["https://example.org"], names=["a.b.f"], when={"symbol": "vllm.x"})
    assert loaded.id == "a-rule"
    assert loaded.files == (FILE,)
    assert loaded.when.symbol == "vllm.x"
    assert rule.describe(loaded)["links"] == ["https://example.org"]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"edit": [EDIT], "surprise": 1}, "surprise"),
        ({"edit": [{**EDIT, "surprise": 1}]}, "surprise"),
        ({"edit": [EDIT], "id": "other"}, "id"),
        ({"edit": [EDIT], "title": ""}, "title"),
        ({"edit": [EDIT], "title": 1}, "title"),
        ({"edit": EDIT}, "edit"),
        ({"edit": [{**EDIT, "count": 0}]}, "count"),
        ({"edit": [{**EDIT, "count": 51}]}, "count"),
        ({"edit": [{**EDIT, "count": "1"}]}, "count"),
        ({"edit": [EDIT], "when": {"symbool": "a"}}, "symbool"),
        ({"edit": [EDIT], "when": {"symbol": 1}}, "symbol"),
        ({}, "no edit"),
        ({"advice": "a", "edit": [EDIT]}, "advice"),
        ({"edit": [EDIT], "file": "/etc/passwd.py"}, "file"),
        ({"edit": [EDIT], "file": "speculators/../vllm/x.py"}, "file"),
        ({"edit": [EDIT], "file": "vllm/x.py"}, "file"),
        ({"edit": [EDIT], "file": "speculators/x.so"}, "file"),
        ({"edit": [EDIT], "file": "speculators\\..\\x.py"}, "file"),
        ({"edit": [EDIT], "file": "speculators//x.py"}, "file"),
        ({"edit": [EDIT], "file": "speculators/./x.py"}, "file"),
        ({"edit": [EDIT], "file": "speculators/x.py\0"}, "file"),
        ({"edit": [EDIT], "file": "speculators/x.py\n"}, "file"),
        ({"edit": [{**EDIT, "file": "../x.py"}]}, "file"),
        ({"imports": [{"add": ["a.b"], "file": "/x.py"}]}, "file"),
        ({"imports": [{"add": ["a-b"]}]}, "add"),
        ({"imports": [{"add": ["os; import sys"]}]}, "add"),
        ({"imports": [{"remove": [""]}]}, "remove"),
        ({"imports": [{"move": {"a.b": "c"}}]}, "move"),
        ({"edit": [EDIT], "names": ["a b"]}, "names"),
        ({"edit": [{**EDIT, "inside": "C.f()"}]}, "inside"),
        ({"edit": [EDIT], "when": {"parameter": "a.b.c"}}, "when.parameter"),
        ({"edit": [EDIT], "when": {"required": "a.b(c, d)"}}, "when.required"),
        ({"edit": [EDIT], "when": {"default": "a.b(c)"}}, "when.default"),
        ({"edit": [EDIT], "when": {"symbol": "a b"}}, "when.symbol"),
        ({"edit": [EDIT], "when": {"not": {"parameter": "x"}}}, "when.not.parameter"),
        ({"edit": [EDIT], "when": {"shape": [{"inside": "vllm.b", "pattern": "f("}]}}, "when.shape.pattern"),
        ({"edit": [EDIT], "when": {"symbol": "vlm.a"}}, "'vlm.a': a probe asks of"),
        ({"edit": [EDIT], "when": {"not": {"parameter": ["vllm.a(b)", "vlm.a(b)"]}}}, "`when.not`: 'vlm.a(b)'"),
        ({"edit": [EDIT], "when": {"not": {"not": {"not": {"not": {"symbol": "a"}}}}}}, "not"),
        ({"edit": [{**EDIT, "when": {"parameter": "a.b.c"}}]}, "edit 1, key `when.parameter`"),
        ({"edit": [{"pattern": "f()"}]}, "pattern"),
        ({"edit": [{"fix": "f()"}]}, "fix"),
        ({"edit": [{"insert": "f()"}]}, "insert"),
        ({"edit": [{"insert": "f()", "after": "g()", "before": "h()"}]}, "after"),
        ({"edit": [{"insert": "f()", "after": "g()", "pattern": "h()", "fix": ""}]}, "exactly one"),
        ({"edit": [{"case": [EDIT], "known": {"X": ["0" * 16]}}]}, "known"),
        ({"edit": [{"insert": "f()", "after": "g()", "count": 2}]}, "count"),
        ({"edit": [EDIT, {"pattern": "f(", "fix": "g()"}]}, "edit 2, key `pattern`"),
        ({"edit": [{"pattern": "f()", "fix": "g("}]}, "key `fix`"),
        ({"edit": [{**EDIT, "unless": "g("}]}, "key `unless`"),
        ({"edit": [{"insert": "f(", "after": "g()"}]}, "key `insert`"),
        ({"edit": [{"insert": "f()", "before": ["g()", "h("]}]}, "key `before`"),
        ({"edit": [{"case": [EDIT, {"pattern": "f(", "fix": ""}]}]}, "edit 1, case 2, key `pattern`"),
        ({"edit": [{"pattern": "f('é')", "fix": "g()"}]}, "ASCII"),
        ({"edit": [{"pattern": "f()", "fix": "# é\ng()"}]}, "ASCII"),
        ({"edit": [{"pattern": "if x:\n\tf()", "fix": "g()"}]}, "tabs"),
        ({"edit": [{"pattern": "f()\r\n", "fix": "g()"}]}, "ASCII"),
        ({"edit": [{"pattern": "f()", "fix": "g($X)"}]}, "$X"),
        ({"edit": [{"pattern": "f($$$X)", "fix": "g($X)"}]}, "$X"),
        ({"edit": [{"pattern": "f($_)", "fix": "g($_)"}]}, "$_"),
        ({"edit": [{"pattern": "f($$$)", "fix": "g($$$)"}]}, "$$$"),
        ({"edit": [{"insert": "f($X)", "after": ["g($X)", "h()"]}]}, "$X"),
        ({"edit": [{"pattern": "$$$X", "fix": "f()"}]}, "matches anything"),
        ({"edit": [{"pattern": "", "fix": "f()"}]}, "pattern"),
        ({"edit": [{"pattern": "\n", "fix": "f()"}]}, "matches anything"),
        ({"edit": [{"pattern": "f()", "fix": ""}]}, "key `unless`"),
        ({"edit": [{"pattern": "__one_X", "fix": "f()"}]}, "tool's own"),
        ({"edit": [{**EDIT, "known": {"Y": ["0" * 16]}}]}, "known.Y"),
        ({"edit": [{**EDIT, "known": {"X": []}}]}, "known.X"),
        ({"edit": [{**EDIT, "known": {"X": ["0"]}}]}, "known.X"),
        ({"edit": [{"pattern": "f($$$, a, $$$, b, $$$, c, $$$)", "fix": "g()"}]}, "runs"),
        ({"edit": [{"pattern": "(" * 3000 + ")" * 3000, "fix": "g()"}]}, "pattern"),
        ({"edit": [{"pattern": "f(" * 60 + ")" * 60, "fix": "g()"}]}, "nested deeper"),
        ({"edit": [{"pattern": "a" + ".b" * 150, "fix": "g()"}]}, "pattern"),
        ({"edit": [{"pattern": "-" * 50000 + "1", "fix": "g()"}]}, "pattern"),
    ],
)
def test_a_bad_rule_is_told_off_by_its_key(keys: dict[str, object], named: str) -> None:
    assert named in problem(rule_text(**keys))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"title = ",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + TOP,
        b"\0",
        b"x = " + b"[" * 30000 + b"]" * 30000,
        b"x = " + b"{a=" * 15000 + b"1" + b"}" * 15000,
        b"x" + b".a" * 30000 + b" = 1",
        b"[" + b"when.not." * 1000 + b"symbol]\n" + TOP,
        TOP + b"when" + b".not" * 5000 + b".symbol = 'a.b'\nadvice = 'a'",
        b"x = " + b"1" * 60000,
        b"title = 't'\ntitle = 't'",
        TOP + b"file = 1979-05-27",
        TOP + b"advice = nan",
    ],
    ids=range(14),
)
def test_a_file_that_is_no_rule_is_told_off(text: bytes) -> None:
    assert problem(text)


def folder(path: Path, **files: bytes) -> Path:
    for name, data in files.items():
        (path / f"{name.replace('_', '-')}.toml").write_bytes(data)
    return path


def test_a_folder_of_rules(tmp_path: Path) -> None:
    advice = rule_text(advice="Do it")
    loaded = rule.load_folder(folder(tmp_path, b_rule=advice, a_rule=advice))
    assert [each.id for each in loaded] == ["a-rule", "b-rule"]


@pytest.mark.parametrize("name", ["A", "a_b", "a--b", "-a", "a b", "a.b"])
def test_a_file_name_that_is_no_id(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_bytes(rule_text(advice="Do it"))
    with pytest.raises(RuleError, match="file name is its id"):
        rule.load_folder(tmp_path)


def test_a_giant_a_folder_and_a_pipe_are_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(rule_text(advice="x" * rule.MAX_BYTES))
    with pytest.raises(RuleError, match="larger than"):
        rule.load(path)
    (tmp_path / "b.toml").mkdir()
    os.mkfifo(tmp_path / "c.toml")
    for name in ("b", "c", "no-such"):
        with pytest.raises(RuleError, match="a rule is a file"):
            rule.load(tmp_path / f"{name}.toml")


def test_a_folder_without_rules_or_with_too_many(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RuleError, match="no rules"):
            rule.load_folder(path)
    for number in range(rule.MAX_RULES + 1):
        (tmp_path / f"r{number}.toml").touch()
    with pytest.raises(RuleError, match="more than"):
        rule.load_folder(tmp_path)


def ids(rules: tuple[Rule, ...]) -> list[str]:
    return [each.id for each in rules]


def advice(rule_id: str, **keys: object) -> Rule:
    return make_rule(rule_id, advice="Do it", **keys)


def test_order() -> None:
    rules = [advice("a", after=["c"]), advice("b"), advice("c", needs=["d"]), advice("d")]
    for given_order in (rules, rules[::-1]):
        assert ids(rule.in_order(given_order)) == ["d", "c", "a", "b"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([advice("a", after=["z"])], "names no rule"),
        ([advice("a", needs=["z"])], "names no rule"),
        ([advice("a", after=["a"])], "wait for each other"),
        ([advice("a", after=["b"]), advice("b", needs=["a"])], "wait for each other"),
    ],
)
def test_order_that_cannot_be(rules: list[Rule], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        rule.in_order(rules)


def test_order_of_many_that_wait_for_many() -> None:
    rules = [advice(f"r{n:02}", after=[f"r{k:02}" for k in range(n)]) for n in range(40)]
    assert ids(rule.in_order(rules)) == sorted(each.id for each in rules)


def test_select() -> None:
    rules = rule.in_order([advice("a"), advice("b", needs=["a"]), advice("c", needs=["b"]), advice("d", after=["c"])])
    assert ids(rule.select(rules, [], [])) == ["a", "b", "c", "d"]
    assert ids(rule.select(rules, ["b"], [])) == ["a", "b"]
    assert ids(rule.select(rules, ["d"], [])) == ["d"]
    assert ids(rule.select(rules, [], ["a"])) == ["d"]
    assert ids(rule.select(rules, [], ["c"])) == ["a", "b", "d"]
    assert ids(rule.select(rules, ["c"], ["a"])) == []
    for only, skip in ((["z"], []), ([], ["z"])):
        with pytest.raises(RuleError, match="no rule is called 'z'"):
            rule.select(rules, only, skip)


@pytest.mark.parametrize(
    ("probe", "yes", "no"),
    [
        (Probe(), True, True),
        (Probe(symbol="vllm.a"), True, False),
        (Probe(symbol=("vllm.a", "vllm.b"), parameter="vllm.a(b)"), True, False),
        (Probe(none=Probe(symbol="vllm.a")), False, True),
        (Probe(symbol="vllm.a", none=Probe(symbol="vllm.b")), False, False),
        (Probe(none=Probe(none=Probe(symbol="vllm.a"))), True, False),
        (Probe(symbol="elsewhere.a"), True, True),  # of a package that the facts do not cover
        (Probe(none=Probe(symbol="elsewhere.a")), True, True),
    ],
)
def test_probes(probe: Probe, yes: bool, no: bool) -> None:
    for expected, answer in ((yes, True), (no, False)):
        assert holds(probe, Answers(answer)) is expected  # type: ignore[arg-type]


def test_a_default_is_asked_with_its_value() -> None:
    facts = Answers()
    assert holds(Probe(default="vllm.a(b) = x == 1"), facts)  # type: ignore[arg-type]
    assert facts.asked == ["vllm.a(b) x == 1"]


# Whatever fits the schema either loads or is refused; what loads plans or is refused. Never another exception.

CODE = st.sampled_from(
    ["f($X)", "f($$$A)", "g($X)", "f(\n    $$$A,\n    x=1,\n)", "x = $V", "x = 1\ny = $V", "def f($$$P):\n    $$$B",
     "", "$X", "$$$A", "# why\nf($X)", "if $C:\n    $$$B\nelse:\n    $$$B", "[$$$A, 1]", "lambda $X: 1", "f(", "é",
     "class C:\n    $$$B", "for $X in $Y:\n    $$$B", "return $X", "f'{$X}'", "$X.$Y", "$F($$$A)", "f(**$X)", "pass",
     "import $X", "from $X import a", "@$X\ndef f(self, $$$P, k):\n    g()\n    $$$B", "x: $T = $V", "del x", "(yield)"]
)  # fmt: skip
NAMES = st.sampled_from(["a.b", "os", "vllm.f", "f", "", "a..b", "C", "C.f", "vllm.v1.request.Request"])
PROBES = st.dictionaries(st.sampled_from(["symbol", "parameter", "default", "not", "other"]), NAMES, max_size=2)
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "pattern": CODE, "fix": CODE, "unless": CODE | st.lists(CODE, max_size=2), "inside": NAMES,
        "before": CODE, "after": CODE | st.lists(CODE, max_size=2), "insert": CODE, "count": st.integers(-1, 3),
        "case": st.lists(st.fixed_dictionaries({"pattern": CODE, "fix": CODE}), max_size=2), "when": PROBES,
        "known": st.dictionaries(st.sampled_from("AXB"), st.lists(st.just("0" * 16), max_size=1), max_size=1),
    },
)  # fmt: skip
PAIRS = st.builds(lambda pattern, fix: {"pattern": pattern, "fix": fix}, CODE, CODE)
INSERTS = st.builds(lambda anchor, text: {"after": anchor, "insert": text}, CODE, CODE)
IMPORTS = st.fixed_dictionaries({}, optional={"add": st.lists(NAMES, max_size=2), "remove": st.lists(NAMES, max_size=1),
                                              "move": st.dictionaries(NAMES, NAMES, max_size=1)})  # fmt: skip
RULES = st.fixed_dictionaries(
    {"edit": st.lists(EDITS | PAIRS | INSERTS, max_size=2)},
    optional={"imports": st.lists(IMPORTS, max_size=2), "names": st.lists(NAMES, max_size=1), "when": PROBES},
)
SOURCE = b"""\
import os
from vllm import f as g
x = 1
y = f(a, x=1)
class C:
    def f(self, a=1):
        f(1)
        return [2, 1]
f(
    2,  # two
)
if x:
    pass
else:
    pass
"""


@settings(max_examples=300)
@given(RULES)
def test_any_rule_plans_or_is_refused(keys: dict[str, object]) -> None:
    try:
        loaded = make_rule(**keys)
        made = plan.make({FILE: SOURCE}, [loaded], YES)
    except PatchError as error:
        assert isinstance(error, RuleError)  # noqa: PT017
        assert error.rule == "a-rule" or error.where == FILE  # noqa: PT017
        return
    assert made.drifts == () or made.after == made.before
    again = plan.make(made.after, [loaded], YES)
    assert made.drifts or again.after == made.after


PATTERNS = [
    "f($X)", "f($$$A)", "f($$$A, x=$X)", "x = $X", "y = $X", "x = 1\ny = $X", "class C:\n    $$$B", "return $X", "$X",
    "1",
    "def f(self, $$$P):\n    $$$B", "if x:\n    $$$A\nelse:\n    $$$B", "[$X, $$$A]", "f($X)\nreturn $Y", "pass", "x",
    "y = f($$$A, x=$X)\nclass C:\n    $$$B", "def f(self, $$$P):\n    f($X)\n    $$$B", "$F($$$A)", "f(2)", "$F(1)",
]  # fmt: skip
FIXES = [
    "g({0})", "{0}", "h()", "# why\ng({0})\nk({0})", "if q:\n    {0}", "", "x = {0}", "[{0}, {1}]", "({0}) + 1", "-{0}",
    "{0}\n{1}", "def f(self, {0}, k=1):\n    {1}", "class D:\n    {0}", "f({0}, x=2)", "f(x=3, *{0})", "await {0}", "2",
    "if x:\n    {0}\nelse:\n    {1}", "return {0}", "y = {0}\nz = {1}", "lambda: {0}", "{0} if {1} else 0", "{0}.a",
]  # fmt: skip


@st.composite
def sound_edits(draw: st.DrawFn) -> dict[str, object]:
    pattern = draw(st.sampled_from(PATTERNS))
    captured = st.sampled_from([*re.findall(r"\$+[A-Z]", pattern), "7"])
    fix = draw(st.sampled_from(FIXES)).format(draw(captured), draw(captured))
    inside = draw(st.sampled_from([{}, {}, {"inside": "C"}, {"inside": "C.f"}]))
    unless = draw(st.sampled_from([{}, {}, {"unless": "g($$$)"}, {"unless": fix or "pass"}]))
    count = draw(st.sampled_from([1, 1, 2]))
    if draw(st.booleans()):
        return {"pattern": pattern, "fix": fix, "count": count, **inside, **unless}
    return {draw(st.sampled_from(["before", "after"])): pattern, "insert": fix or "pass", **inside, **unless}


OUTCOMES: Counter[str] = Counter()


# The same examples each time, since the test after this one counts what became of them.
@settings(max_examples=500, derandomize=True)
@given(st.lists(sound_edits(), min_size=1, max_size=2), st.sampled_from([[], ["vllm.f"]]))
def test_any_edit_plans_or_is_refused(edits: list[dict[str, object]], names: list[str]) -> None:
    try:
        made = plan.make({FILE: SOURCE}, [make_rule(edit=edits, names=names)], YES)
    except PatchError as error:
        assert isinstance(error, RuleError)  # noqa: PT017
        OUTCOMES["refused"] += 1
        return
    OUTCOMES[made.outcomes[0].state] += 1
    if made.drifts:
        assert made.after == made.before
    else:
        check_noop(made.after[FILE], made.outcomes[0].rule)
        check_reversible(made)


def test_the_strategy_reaches_every_outcome() -> None:
    if not OUTCOMES:  # run alone
        test_any_edit_plans_or_is_refused()
    assert min(OUTCOMES[name] for name in ("refused", "applies", "satisfied", "drifted")) > 2


@settings(max_examples=200)
@given(
    st.recursive(
        st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["edit", "not", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from(["title", "file", "when", "edit", "imports", "names", "after", "links", "advice", "x", "id"]),
)
def test_any_value_of_any_key_loads_or_is_refused(value: object, key: str) -> None:
    try:
        make_rule(**{"edit": [EDIT], key: value})
    except RuleError as error:
        assert error.where == "a-rule.toml"  # noqa: PT017


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.integers(0, 300).map(lambda cut: rule_text(edit=[EDIT])[:cut]))
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    try:
        rule.parse(data, "a-rule", "a-rule.toml")
    except RuleError as error:
        assert error.where == "a-rule.toml"  # noqa: PT017


def test_the_toml_of_the_helpers_is_toml() -> None:
    assert toml({"a": ["b", {"c": 1}]}) == '{"a" = ["b", {"c" = 1}]}'
    assert replacing("f($X)", "g($X)", names=["a.f"]).names == ("a.f",)

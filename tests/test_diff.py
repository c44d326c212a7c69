from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patcher import diff
from patcher.errors import RuleError
from tests.helpers import patched

BEFORE = {"speculators/a.py": b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "speculators/b.py": b"x\n"}
AFTER = {"speculators/a.py": b"1\n2\n3\n4\nfive\n6\n7\n8\n9\nten\n", "speculators/b.py": b"x\n"}


def test_a_diff() -> None:
    assert diff.unified(BEFORE, AFTER, context=1) == (
        b"--- a/speculators/a.py\n+++ b/speculators/a.py\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n@@ -9 +9,2 @@\n 9\n+ten\n"
    )
    assert diff.unified(BEFORE, BEFORE) == b""


HARD = [
    (b"a\nb\n", b"a\nc\n"),
    (b"a\nb", b"a\nc"),
    (b"a\nb", b"a\nb\n"),
    (b"a\nb\n", b"a\nb"),
    (b"a\r\nb\r\n", b"a\r\nc\r\n"),
    (b"a\r\nb", b"a\r\nb\r\nc"),
    (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
    (b"# \xe9\na\n", b"# \xe9\nb\n"),
    (b"a\x0cb\nc\n", b"a\x0cb\nd\n"),
    (b"a\x85b\xe2\x80\xa8c\rd\n", b"a\x85b\xe2\x80\xa8c\re\n"),
    (b"--- x\n+++ y\n@@ z\n", b"--- x\n+++ z\n@@ z\n"),
    (b"-- x\n", b"-- y\n"),
    (b"\n\n\n", b"\n\n"),
]


@pytest.mark.parametrize(("before", "after"), HARD, ids=range(len(HARD)))
def test_git_and_patch_take_it_forward_and_in_reverse(tmp_path: Path, before: bytes, after: bytes) -> None:
    name = "speculators/a.py"
    text = diff.unified({name: before}, {name: after})
    assert patched(before, text, name) == after
    (tmp_path / "the.diff").write_bytes(text)
    file = tmp_path / name
    file.parent.mkdir()
    for command, reverse in ((["git", "apply", "-p1"], "-R"), (["patch", "-p1", "--binary", "-s", "-i"], "-R")):
        file.write_bytes(before)
        subprocess.run([*command, "the.diff"], cwd=tmp_path, check=True)
        assert file.read_bytes() == after
        subprocess.run([command[0], *command[1:2], reverse, *command[2:], "the.diff"], cwd=tmp_path, check=True)
        assert file.read_bytes() == before


@settings(max_examples=200)
@given(
    *[st.lists(st.sampled_from([b"a", b"b\r", b"", b"-- c", b"++ d", b"@@", b"\\ e"]), max_size=12)] * 2,
    st.booleans(),
    st.booleans(),
)
def test_any_diff_goes_both_ways(one: list[bytes], two: list[bytes], end: bool, other_end: bool) -> None:
    before, after = b"\n".join(one) + b"\n" * end, b"\n".join(two) + b"\n" * other_end
    text = diff.unified({"f.py": before}, {"f.py": after})
    assert patched(before, text, "f.py") == after
    assert patched(after, diff.unified({"f.py": after}, {"f.py": before}), "f.py") == before
    if before != after:
        assert diff.same(text, diff.unified({"f.py": before}, {"f.py": after}, context=0), "x")


def test_context_and_text_between_do_not_count() -> None:
    text = diff.unified(BEFORE, AFTER)
    assert diff.same(text, text, "x")
    assert diff.same(text, b"A note.\n\n" + diff.unified(BEFORE, AFTER, context=0), "x")


@pytest.mark.parametrize(
    "other",
    [
        {"speculators/a.py": b"1\n2\n3\n4\nfive\n6\n7\n8\n9\n"},
        {"speculators/a.py": b"1\n2\n3\n4\nfive\n6\n7\n8\n9\nten"},
        {"speculators/a.py": b"1\n2\n3\n4\nfive\n6\n7\n8\nten\n9\n"},
        {"speculators/a.py": b"1\n2\n3\n4\nfive\r\n6\n7\n8\n9\nten\n"},
        {"speculators/b.py": b"y\n"},
        {"speculators/a.py": BEFORE["speculators/a.py"]},
    ],
)
def test_another_change_is_another_diff(other: dict[str, bytes]) -> None:
    text, changed = diff.unified(BEFORE, AFTER), diff.unified(BEFORE, {**AFTER, **other})
    if changed:
        assert not diff.same(text, changed, "x")
        assert not diff.same(changed, text, "x")
    assert not diff.same(text, b"", "x")


def test_the_same_lines_elsewhere_are_another_diff() -> None:
    before = b"f()\n" + b"x\n" * 9 + b"f()\n"
    one = diff.unified({"a.py": before}, {"a.py": before.replace(b"f()", b"g()", 1)}, context=0)
    two = diff.unified({"a.py": before}, {"a.py": before[:-4] + b"g()\n"}, context=0)
    assert diff.same(one, one, "x")
    assert not diff.same(one, two, "x")


TEXT = diff.unified(BEFORE, AFTER)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"--- a\n",
        b"@@ -1 +1 @@\n-x\n+y\n",
        b"--- a/f.py\n+++ b/f.py\n@@ -1,3 +1 @@\n-x\n",
        TEXT[:-10],
        TEXT + TEXT,
        b"x" * (diff.MAX_BYTES + 1),
    ],
    ids=range(7),
)
def test_what_is_no_diff_is_refused(data: bytes) -> None:
    with pytest.raises(RuleError) as caught:
        diff.same(TEXT, data, "reviewed.diff")
    assert caught.value.where == "reviewed.diff"


@settings(max_examples=300)
@given(st.integers(0, len(TEXT) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_diff_is_another_or_refused(at: int, insert: bytes, cut: int) -> None:
    damaged = TEXT[:at] + insert + TEXT[at + cut :]
    try:
        same = diff.same(TEXT, damaged, "reviewed.diff")
    except RuleError as error:
        assert error.where == "reviewed.diff"  # noqa: PT017
        return
    if same:  # then the damage was to context or to a header's count of it
        assert diff.changes(damaged, "x") == diff.changes(TEXT, "x")

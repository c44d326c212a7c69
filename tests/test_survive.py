"""The commands that show what is survived: they look at enough, and they can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from patcher import sealed
from tests import fuzz, survive


def test_every_fault_has_a_test_that_is_there() -> None:
    found = survive.tests_of_faults()
    assert sorted(found) == list(range(1, 31))
    for number, names in found.items():
        assert names, f"fault {number} has no test"
        for name in names:
            file, _, function = name.partition("::")
            assert f"\ndef {function}(" in (survive.TESTS / file).read_text(encoding="utf-8")


def test_damage_is_refused_or_has_no_effect(tmp_path: Path) -> None:
    found = list(fuzz.counts(tmp_path, 97))
    assert [each.wrong for each in found] == [()] * len(found)
    assert all(each.tried for each in found)
    assert sum(each.refused for each in found) > 50


def test_damage_that_is_taken_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "_refused", lambda *_: ZeroDivisionError("not an error of the tool's"))
    assert any(each.wrong for each in fuzz.journals(tmp_path, 40))


def test_a_traceback_and_a_silent_answer_are_wrong() -> None:
    def raising() -> str:
        raise ValueError("x")

    found = fuzz.count("kind", iter([("a", raising), ("b", lambda: None), ("c", lambda: "harmless")]))
    assert (found.tried, len(found.wrong)) == (3, 2)

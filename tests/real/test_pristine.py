"""What unpatched releases do: the check has to see the known faults, and to pass what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from patcher.verify import Report, verify
from tests.helpers import kept_folder
from tests.real.environments import pristine

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.real


def report(vllm: str, speculators: str, sessions: Sequence[str], batches: Sequence[str] | None = None) -> Report:
    interpreter = pristine(vllm, speculators)
    return verify(
        interpreter,
        sessions=sessions,
        batches=batches,
        time_limit=800,
        progress=print,
        keep=kept_folder(interpreter),
        lend_memory=True,  # the parent asks for GPU memory, which is a fault of its own
    )


def test_0_4_0_1_gives_results_at_the_wrong_index_and_loses_the_33rd_sequence() -> None:
    found = report("0.16.0", "0.4.0.1", ["default", "order"])
    verdicts = {row.name: row.verdict for row in found.rows}
    # The control: the same run sees right answers too.
    assert verdicts["default/one"] == verdicts["default/shared"] == verdicts["default/long"] == "right"
    mixed = found.row("default", "mixed")
    assert (mixed.verdict, mixed.misplaced, mixed.ids_equal) == ("wrong", 10, False)
    fifty = found.row("default", "fifty")
    assert fifty.error is not None
    assert fifty.error.type == "RuntimeError"
    assert "req_4_32 not found" in fifty.error.text
    order = found.row("order", "mixed")
    assert order.verdict == "wrong"
    assert order.worst is not None
    assert order.worst > 0.5
    assert not found.passed


def test_0_3_0_is_right_on_the_vllm_that_it_was_written_for() -> None:
    found = report("0.11.0.post2", "0.3.0", ["default"], ["one", "mixed", "shared"])
    assert found.passed, found.table()
    assert {row.name for row in found.rows} >= {"default/one", "default/mixed", "default/shared"}

"""The rules give for every pair of releases what golden/ keeps: 3 releases of speculators, 35 of vLLM."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from patcher import conformance, plan, rule
from tests import golden
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES

# What upstream mended itself between 0.3.0 and 0.4.0, each by the rule of ours that does the same on 0.3.0.
MENDED_BY_UPSTREAM = {
    "block-hasher",
    "eagle3-gate",
    "max-batched-tokens",
    "none-hash",
    "prefix-caching-off",
    "request-block-hasher",
    "scheduler-block-size",
    "scheduler-config-encoder-decoder",
    "kv-cache-specs-argument",
}


def test_golden_files_are_what_the_rules_give() -> None:
    """Made afresh in memory and compared, name by name; a file on disk that nothing makes is an error too.

    If this fails after a change of the rules: python -m tests.golden, and read the difference line by line.
    """
    made, kept = golden.all_files(), golden.on_disk()
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []
    assert len([name for name in made if name.startswith("pairs/")]) == 3 * 35


def test_golden_comparison_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: one byte more in one golden file is seen, and so is a file that nothing makes."""
    monkeypatch.setattr(golden, "GOLDEN", tmp_path)
    files = {"rules/one.diff": b"a\n", "rules/two.diff": b"b\n"}
    assert golden.write(files) == sorted(files)
    assert golden.write(files) == []
    (tmp_path / "rules/one.diff").write_bytes(b"a\n\n")
    (tmp_path / "rules/three.diff").write_bytes(b"")
    assert golden.on_disk() != files
    assert golden.write(files) == ["rules/one.diff", "rules/three.diff"]
    assert golden.on_disk() == files


@pytest.mark.parametrize("vllm", VLLM_RELEASES)
@pytest.mark.parametrize("speculators", SPECULATORS_RELEASES)
def test_every_pair_is_planned_without_drift_and_conforms(speculators: str, vllm: str) -> None:
    made = golden.pair(speculators, vllm)
    assert [str(found) for found in made.drifts] == []
    assert [str(found) for found in conformance.check(made.after, golden.facts(vllm))] == []
    again = plan.make(made.after, golden.rules(), golden.facts(vllm))
    assert again.after == made.after
    assert {outcome.state for outcome in again.outcomes} <= {"satisfied", "not-needed", "advice"}


def test_what_upstream_mended_itself_is_satisfied() -> None:
    """The independent oracle: 0.4.0 is 0.3.0 with upstream's own edits for vLLM 0.16."""
    on_old = {outcome.rule.id: outcome.state for outcome in golden.pair("0.3.0", "0.16.0").outcomes}
    on_new = {outcome.rule.id: outcome.state for outcome in golden.pair("0.4.0", "0.16.0").outcomes}
    assert {on_old[name] for name in MENDED_BY_UPSTREAM} == {"applies"}
    assert {name: on_new[name] for name in MENDED_BY_UPSTREAM} == dict.fromkeys(MENDED_BY_UPSTREAM, "satisfied")


@pytest.mark.parametrize("speculators", ["0.3.0", "0.4.0.1"])
def test_any_order_of_the_rules_gives_the_same_bytes(speculators: str) -> None:
    made = golden.pair(speculators, "0.16.0")
    chance = random.Random(16)
    for _ in range(10):
        shuffled = list(golden.rules())
        chance.shuffle(shuffled)
        ordered = _keeping_after(shuffled)
        assert plan.make(made.before, ordered, golden.facts("0.16.0")).after == made.after


def _keeping_after(rules: list[rule.Rule]) -> tuple[rule.Rule, ...]:
    """The given order, but each rule behind those that it names."""
    left, done = list(rules), list[rule.Rule]()
    while left:
        ready = next(r for r in left if not {*r.after, *r.needs} & {other.id for other in left})
        left.remove(ready)
        done.append(ready)
    return tuple(done)

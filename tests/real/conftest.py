"""One folder of bytecode for all runs: each would compile the thousands of modules of torch and vLLM again.

One process runs all tests here, one after the other (tests/conftest.py): they share environments.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrix import bytecode


@pytest.fixture(scope="package", autouse=True)
def _bytecode() -> Iterator[None]:
    with bytecode():
        yield

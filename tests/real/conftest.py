"""One folder of bytecode for all runs: each would compile the thousands of modules of torch and vLLM again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _bytecode() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="speculators-patch-bytecode-") as folder, pytest.MonkeyPatch.context() as p:
        p.setenv("PYTHONPYCACHEPREFIX", folder)
        yield

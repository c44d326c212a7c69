"""Real environments for the tests: made once, kept in the user's cache, and never left patched.

The tests that change an environment take it back; what a run that was killed has left is taken back first.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from pathlib import Path

from tests import ablation

FILES = (
    "speculators/data_generation/vllm_hidden_states_generator.py",
    "speculators/data_generation/custom_worker.py",
)


def pristine(vllm: str, speculators: str) -> Path:
    """The interpreter of a real environment of this pair, whose two files are the wheel's, byte for byte."""
    found = ablation.interpreter_of(speculators, vllm)
    for name, hashed in recorded(site_packages(found)).items():
        text = (site_packages(found) / name).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        assert hashed == f"sha256={digest}", f"{name} in {found} is not the release's"
    return found


def site_packages(python: Path) -> Path:
    """The one site-packages folder of an environment that `pristine` gave."""
    (found,) = (python.parent.parent / "lib").glob("python3*/site-packages")
    return found


def recorded(site: Path) -> dict[str, str]:
    """The hashes of the two files in the RECORD of speculators."""
    (record,) = site.glob("speculators-*.dist-info/RECORD")
    with record.open(encoding="utf-8", newline="") as rows:
        return {row[0]: row[1] for row in csv.reader(rows) if row[0] in FILES}

"""The real matrix: every vLLM on a CPU, every release of speculators, one real extraction each.

    python -m tests.matrix                     all cells that golden/matrix.json does not have yet
    python -m tests.matrix 0.16.0 0.32.0       only these releases of vLLM
    python -m tests.matrix --again             also those that it has
    python -m tests.matrix --table             put the table of the record into the README, and print it

A vLLM that has no build for the CPU is put on the compiled part of another's: tests/graft.py.

For each vLLM one environment is made, used for the three releases of speculators in turn, and deleted: apply, verify,
revert. Each cell is written as soon as it is known, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from patcher import environment, record
from patcher.errors import PatchError
from patcher.verify import Report, Row, verify
from tests.ablation import written
from tests.graft import ONTO, graft
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES

RECORD = Path(__file__).resolve().parent.parent / "golden" / "matrix.json"
README = RECORD.parent.parent / "README.md"
# The plain builds of these do not recognise themselves as builds for the CPU.
BUILDS = {"0.11.0": "0.11.0.post2", "0.11.1": "0.11.1.post2", "0.11.2": "0.11.2.post2", "0.12.0": "0.12.0.post2"}
SESSIONS = ("default", "order", "chunked", "prefix-caching")
_lock = threading.Lock()

Cell = dict[str, Any]


def run(versions: Sequence[str], *, again: bool) -> int:
    """Fill the cells; how many of them are not right."""
    wanted = [version for version in versions if again or _missing(version)]
    # An extraction starts in one thread for most of its time.
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool, bytecode():
        bad = sum(pool.map(lambda version: _column(version, again=again), wanted))
    print(table())
    return bad


@contextmanager
def bytecode() -> Iterator[None]:
    """One folder of bytecode for all runs: the environments of a column lie at one path and hold the same files."""
    with (
        tempfile.TemporaryDirectory(prefix="speculators-patch-bytecode-") as folder,
        mock.patch.dict(os.environ, PYTHONPYCACHEPREFIX=folder),
    ):
        yield


def _missing(vllm: str) -> list[str]:
    cells = load()
    return [release for release in SPECULATORS_RELEASES if f"{release} on {vllm}" not in cells]


def _column(vllm: str, *, again: bool) -> int:
    """One vLLM under every release of speculators that is asked for."""
    releases = list(SPECULATORS_RELEASES) if again else _missing(vllm)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="speculators-patch-matrix-") as scratch:
        for release in releases:
            try:
                cell = _cell(Path(scratch) / "env", vllm, release)
            except (PatchError, subprocess.CalledProcessError) as error:
                cell = {"verdict": "failed", "why": str(error)[:2000]}
            keep(f"{release} on {vllm}", cell)
            bad += cell["verdict"] not in {"right", "not runnable here"}
            shutil.rmtree(Path(scratch) / "env", ignore_errors=True)  # the next is made out of uv's cache in seconds
        shutil.rmtree(os.environ["PYTHONPYCACHEPREFIX"] + scratch, ignore_errors=True)
    return bad


def _cell(folder: Path, vllm: str, speculators: str) -> Cell:
    began = time.monotonic()
    interpreter = _environment(folder, vllm, speculators)
    with written(interpreter, ()) as prepared:
        applied = sorted(outcome.rule.id for outcome in prepared.plan.outcomes if outcome.state == "applies")
        findings = [str(finding) for finding in prepared.findings]
        report = verify(interpreter, sessions=SESSIONS, time_limit=900, keep=folder.with_name("kept"))
    restored = set(record.pristine(prepared.target).values()) == {True}
    right = report.passed and restored and not findings
    broken = None if right else build_error(interpreter)
    return {
        "verdict": "right" if right else "not runnable here" if broken else "wrong",
        **({"why": broken} if broken else {}),
        "rules": applied,
        "findings": findings,
        "restored": restored,
        **facts_of(report),
        "seconds": round(time.monotonic() - began, 1),
    }


def _environment(folder: Path, vllm: str, speculators: str) -> Path:
    build = ONTO.get(vllm) or BUILDS.get(vllm, vllm)
    interpreter = environment.make(folder, vllm=build, speculators=speculators, python=None, progress=lambda _: None)
    if vllm in ONTO:
        graft(interpreter, vllm)
    return interpreter


def build_error(interpreter: Path) -> str | None:
    """Why this build of vLLM does not run on this machine, whatever speculators does; None if it does."""
    command = [str(interpreter), "-c", "import torch, vllm._C"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return None
    return ended.stderr.strip().rpartition("\n")[2].replace(str(interpreter.parent.parent), "ENV")


def facts_of(report: Report) -> Cell:
    """What a record keeps of a report."""
    return {
        "versions": report.versions,
        "python": report.python,
        "worst": max((row.worst for row in report.rows if row.worst is not None), default=None),
        **({"causes": list(report.causes)} if report.causes else {}),
        **({"stopped": report.stopped, "log": report.log_tail[-1500:]} if report.stopped else {}),
        "batches": {row.name: _batch(row) for row in report.rows},
    }


def _batch(row: Row) -> str:
    worst = "" if row.worst is None else f" {row.worst:.4f}"
    return f"{row.verdict}{worst}" + (f" {row.remark[:300]}" if row.verdict != "right" and row.remark else "")


def load(record: Path = RECORD) -> dict[str, Cell]:
    """The record: name -> cell."""
    return dict(json.loads(record.read_text(encoding="utf-8"))) if record.is_file() else {}


def keep(name: str, cell: Cell, record: Path = RECORD) -> None:
    """Put a cell into the record, in one step."""
    print(f"{name}: {cell['verdict']} {cell.get('worst', '')} {cell.get('seconds', '')} s", flush=True)
    with _lock:
        part = record.with_name(f".{record.name}.{os.getpid()}")
        text = json.dumps({**load(record), name: cell}, indent=1, sort_keys=True)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(record)


def table() -> str:
    """The record for the README: one line a vLLM, the worst row's relative error or the verdict."""
    cells = load()
    lines = ["| vLLM | " + " | ".join(SPECULATORS_RELEASES) + " |", "|---" * (1 + len(SPECULATORS_RELEASES)) + "|"]
    for vllm in VLLM_RELEASES:
        shown = [_shown(cells.get(f"{release} on {vllm}")) for release in SPECULATORS_RELEASES]
        if set(shown) != {"not run"}:
            lines.append(f"| {vllm} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def into_readme(name: str, text: str) -> None:
    """Put a record's table between its two marks in the README, and print it."""
    readme = README.read_text(encoding="utf-8")
    head, _, rest = readme.partition(f"<!-- {name} -->\n")
    _, mark, tail = rest.partition(f"<!-- /{name} -->")
    assert mark, f"the README has no place for the table of {name}"
    README.write_text(f"{head}<!-- {name} -->\n{text}\n{mark}{tail}", encoding="utf-8")
    print(text)


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "not run"
    return f"right, {cell['worst']:.2%}" if cell["verdict"] == "right" else str(cell["verdict"])


def main(arguments: Sequence[str]) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description="The real matrix of vLLM and speculators releases.")
    parser.add_argument("versions", nargs="*", help="releases of vLLM; all by default")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        into_readme("matrix", table())
        return 0
    chosen = options.versions or VLLM_RELEASES
    return 1 if run(chosen, again=options.again) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

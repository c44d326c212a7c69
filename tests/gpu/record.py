"""The record of a run on a GPU: one JSON file for a vLLM and a speculators release, kept under ``golden/gpu``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from packaging.version import Version

from patcher.verify.report import GOOD, Report, Row

RUNNERS = ("default", "V1", "V2")
FOLDER = Path(__file__).resolve().parents[2] / "golden" / "gpu"


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a report, as the record keeps it: errors are relative, of the worst and the median row."""

    name: str
    verdict: str
    prompts: int = 0
    worst: float | None = None
    median: float | None = None
    remark: str = ""


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verification: what was asked for, what ran, and what was found."""

    family: str
    asked: str  # the model runner: "default", "V1" or "V2"
    tp: int
    passed: bool
    runner: str | None = None
    attention: tuple[str, ...] = ()
    seconds: float = 0.0
    worst: float | None = None
    batches: tuple[Batch, ...] = ()
    failed: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells a cell from the others of its record."""
        return (self.family, self.asked, self.tp)


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something else that was shown: how it ended and what was said."""

    name: str
    passed: bool
    said: str
    numbers: dict[str, float] = {}


class Record(msgspec.Struct, omit_defaults=True):
    """Everything found for one pair of releases."""

    vllm: str
    speculators: str
    device: str = ""
    versions: dict[str, str] = {}
    rules: dict[str, str] = {}
    proofs: list[Proof] = []
    cells: list[Cell] = []

    @property
    def name(self) -> str:
        """The file's name."""
        return f"vllm-{self.vllm}-speculators-{self.speculators}.json"

    @property
    def failed(self) -> int:
        """How many of the cells and proofs did not pass."""
        return sum(not cell.passed for cell in self.cells) + sum(not proof.passed for proof in self.proofs)

    def add(self, found: Cell | Proof) -> None:
        """Put a cell or a proof in, in the place of an earlier one of the same key."""
        if isinstance(found, Cell):
            self.cells = sorted([*(c for c in self.cells if c.key != found.key), found], key=lambda c: c.key)
        else:
            self.proofs = sorted([*(p for p in self.proofs if p.name != found.name), found], key=lambda p: p.name)


def read(path: Path) -> Record:
    """A record's file."""
    return msgspec.json.decode(path.read_bytes(), type=Record)


def every() -> list[Record]:
    """All that were kept, the oldest vLLM first."""
    found = [read(path) for path in FOLDER.glob("*.json")]
    return sorted(found, key=lambda record: (Version(record.vllm), Version(record.speculators)))


def table() -> str:
    """The records for the README: a line for each family on each vLLM, a column for each release and model runner."""
    records = every()
    columns = [(release, asked) for release in sorted({r.speculators for r in records}) for asked in RUNNERS]
    heads = [f"{release}, {asked}" for release, asked in columns]
    lines = [f"| vLLM | family | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for vllm in dict.fromkeys(record.vllm for record in records):
        cells = {(r.speculators, *cell.key): cell for r in records if r.vllm == vllm for cell in r.cells}
        for family in dict.fromkeys(name for _, name, _, _ in cells):
            shown = [_shown(cells.get((release, family, asked, 1))) for release, asked in columns]
            lines.append(f"| {vllm} | {family} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    ran = f" ({cell.runner})" if cell.asked == "default" else ""
    return f"right, {cell.worst:.2%}{ran}" if cell.passed and cell.worst is not None else "not finished"


def load(folder: Path, vllm: str, speculators: str) -> Record:
    """The record that is there, or an empty one."""
    empty = Record(vllm=vllm, speculators=speculators)
    path = folder / empty.name
    return read(path) if path.is_file() else empty


def save(folder: Path, record: Record) -> None:
    """Replace the record's file in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{record.name}.{os.getpid()}"
    part.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    part.replace(folder / record.name)


def cell(report: Report, *, family: str, asked: str, tp: int, seconds: float) -> Cell:
    """A report as the record keeps it."""
    started = [row for row in report.rows if row.runner]
    worst = [row.worst for row in report.rows if row.worst is not None]
    return Cell(
        family=family,
        asked=asked,
        tp=tp,
        passed=report.passed,
        runner=started[0].runner if started else None,
        attention=started[0].attention if started else (),
        seconds=round(seconds, 1),
        worst=_short(max(worst)) if worst else None,
        batches=tuple(_batch(row) for row in report.rows),
        failed=None if report.passed else " | ".join([report.stopped or _first_wrong(report), *report.causes[:2]]),
    )


def _first_wrong(report: Report) -> str:
    wrong = [row for row in report.rows if row.verdict not in GOOD]
    return f"{wrong[0].name}: {wrong[0].verdict}: {wrong[0].remark[:300]}" if wrong else "nothing was extracted"


def _batch(row: Row) -> Batch:
    remark = "" if row.runner and row.verdict == "right" else row.remark[:200]
    return Batch(row.name, row.verdict, row.prompts, _short(row.worst), _short(row.median), remark)


def _short(error: float | None) -> float | None:
    return None if error is None else round(error, 5)

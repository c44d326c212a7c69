"""What a verification found: one row a batch, read from the JSON that the payload writes."""

from __future__ import annotations

import msgspec

# "loud": the prefix cache was forced on and a repeated prompt was refused with an error instead of answered wrongly.
GOOD = frozenset({"right", "loud", "skipped"})
PROVING = frozenset({"right", "loud"})


class Failure(msgspec.Struct, frozen=True):
    """An exception in the target: its type's name, its text and its traceback."""

    type: str
    text: str
    traceback: str = ""


class Row(msgspec.Struct, frozen=True):
    """One batch that one generator was given, or a generator's start (no prompts).

    ``worst`` and ``median`` are relative errors of a row (one token in one layer): 0.01 is 1 %, and a row
    of another token has about 1.0 to 1.4. ``misplaced`` counts results that are right for another prompt.
    """

    session: str
    batch: str
    prompts: int
    layers: tuple[int, ...]
    verdict: str
    seconds: float
    worst: float | None = None
    median: float | None = None
    misplaced: int = 0
    wrong_results: int = 0
    ids_equal: bool | None = None
    shapes_equal: bool | None = None
    cached_blocks: int | None = None
    none_hash_set: bool | None = None
    note: str | None = None
    error: Failure | None = None
    # Of a generator's start: the model runner of its workers (V1 or V2) and the attention back ends of the layers.
    runner: str | None = None
    attention: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The generator and the batch, as one word."""
        return f"{self.session}/{self.batch}"

    @property
    def remark(self) -> str:
        """What else there is to say, on one line."""
        said = [self.note] if self.note else []
        if self.runner:
            said.append(f"runner {self.runner}, {' '.join(self.attention)}".rstrip(", "))
        if self.misplaced:
            said.append(f"{self.misplaced} of {self.prompts} at the wrong index")
        if self.error:
            said.append(f"{self.error.type}: {' '.join(self.error.text.split())}")
        return "; ".join(said)


class Report(msgspec.Struct, frozen=True):
    """Everything one verification found."""

    family: str
    rows: tuple[Row, ...] = ()
    finished: bool = False
    versions: dict[str, str] = {}
    reference: str = "transformers"
    python: str = ""
    gpu: bool = False
    one_prompt_a_call: bool = False
    multiproc_method: str | None = None
    # Why there are no more rows: the time limit, or a script of the payload that ended early.
    stopped: str | None = None
    # The last errors that the processes of the check printed: a worker's own error stands nowhere else.
    causes: tuple[str, ...] = ()
    log_tail: str = ""

    @property
    def passed(self) -> bool:
        """Every row is good, at least one batch was really extracted, and nothing is missing."""
        proven = any(row.verdict in PROVING and row.prompts for row in self.rows)
        return self.finished and proven and all(row.verdict in GOOD for row in self.rows)

    def row(self, session: str, batch: str) -> Row:
        """The row of one generator and batch.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if (row.session, row.batch) == (session, batch):
                return row
        raise KeyError(f"{session}/{batch}")

    def table(self) -> str:
        """The report for a reader: one line a row, then the verdict."""
        head = ("batch", "prompts", "layers", "worst row", "seconds", "verdict", "")
        lines = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
        text = [_line(line, widths) for line in lines]
        return "\n".join([self._title(), *text, self._verdict()])

    def _title(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        manner = ", one prompt a call" if self.one_prompt_a_call else ""
        device = "GPU" if self.gpu else "CPU"
        return f"verify {self.family} on {device} against {self.reference}{manner} ({versions or 'versions unknown'})"

    def _verdict(self) -> str:
        if self.passed:
            return "passed"
        bad = sum(row.verdict not in GOOD for row in self.rows)
        why = self.stopped or f"{bad} of {len(self.rows)} rows are not right"
        return "\n".join(
            [f"failed: {why}", *(f"  printed by a process of the check: {cause}" for cause in self.causes)]
        )


def _cells(row: Row) -> tuple[str, ...]:
    layers = ",".join(map(str, row.layers))
    worst = "-" if row.worst is None else f"{row.worst:.2%}"
    prompts = str(row.prompts) if row.prompts else "-"
    return (row.name, prompts, layers, worst, f"{row.seconds:.1f}", row.verdict, row.remark[:160])


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    *columns, remark = cells
    right = {1, 3, 4}
    padded = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return ("  ".join(padded) + "  " + remark).rstrip()

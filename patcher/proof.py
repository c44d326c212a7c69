"""Apply, and keep what was applied only if a real extraction on it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patcher import session, transaction, verify
from patcher.errors import ProofError
from patcher.signals import Deferred, unwinding

if TYPE_CHECKING:
    from collections.abc import Callable

    from patcher.session import Prepared
    from patcher.transaction import Result
    from patcher.verify import Report


def write_and_prove(
    prepared: Prepared, tool: str, *, written: Callable[[Result], None], progress: Callable[[str], None]
) -> tuple[Result, Report]:
    """Write the plan and run a real extraction; unless it is right, take back what was applied here.

    Whatever else ends this (no report, Ctrl-C, SIGTERM, an error in ``written``) takes it back too.

    Args:
        prepared: what to write.
        tool: name and version of this tool, for the record.
        written: called with what was written, before the minutes that the extraction takes.
        progress: called with one line for each step.

    Raises:
        ProofError: there is no report.
        FileError: it can't be written, or not be taken back.
    """
    result, passed = None, False
    with unwinding():
        try:
            result = session.write(prepared, tool)
            written(result)
            report = verify.verify(prepared.target.interpreter, files=prepared.target.files, progress=progress)
            passed = report.passed
        finally:
            if not passed:
                _take_back(prepared, result, progress)
    return result, report


def _take_back(prepared: Prepared, result: Result | None, progress: Callable[[str], None]) -> None:
    with Deferred():
        # A signal that came while files were written acts when that is done, before there is a result.
        if result.outcome == "applied" if result else _stands(prepared):
            transaction.revert(prepared.target)
            progress("what was applied is taken back")
        else:
            progress("this apply has written nothing, and takes nothing back")


def _stands(prepared: Prepared) -> bool:
    changes = prepared.changes
    return bool(changes) and all(session.read(prepared.target, name) == after for name, (_, after) in changes.items())


def not_right(result: Result) -> ProofError:
    """What apply ends with after an extraction that is not right."""
    applied = "`speculators-patch revert` puts the release's own files back"
    return ProofError("the extraction is not right", hint=None if result.outcome == "applied" else applied)

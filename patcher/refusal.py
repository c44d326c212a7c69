"""What keeps a plan from being written, each with its exit code, what was found, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patcher import rule as rules
from patcher.errors import OR_MEND, REINSTALL, DriftError, FileError, ProofError, TargetError
from patcher.target import refuse_source

if TYPE_CHECKING:
    from pathlib import Path

    from patcher.session import Prepared
    from patcher.target import Target


def refuse(prepared: Prepared, *, allow_modified: bool, allow_editable: bool) -> None:
    """Raise unless the plan may be written: no drift, conforming, and nobody's own edits overwritten.

    Raises:
        DriftError: a rule drifted, or a file was edited by hand and ``allow_modified`` is not set.
        ProofError: an import or a call of the planned files does not fit the installed vLLM.
        TargetError: speculators is an editable or VCS install and ``allow_editable`` is not set.
    """
    if not allow_editable:
        refuse_source(prepared.target)
    refuse_drift(prepared)
    if not allow_modified:
        _refuse_modified(prepared)
    refuse_findings(prepared)


def refuse_unable(target: Target) -> None:
    """Of a target without the files: refuse one that had them, or that never could extract; later ones need none.

    Raises:
        DriftError: a file that this release came with is gone.
        TargetError: the release is from before there was an extraction.
    """
    from patcher import record as records  # noqa: PLC0415

    if lost := records.lost(target):
        raise DriftError(
            "files of this release are gone", where=", ".join(str(target.path(name)) for name in lost), hint=REINSTALL
        )
    root = target.speculators.root
    if not (root / "data_generation" / "__init__.py").is_file():
        raise TargetError(
            f"speculators {target.speculators.version} does not extract hidden states",
            where=str(root),
            expected="0.3.0 to 0.4.0.1, or a release from 0.5.0 on, which extracts by itself",
        )


def refuse_drift(prepared: Prepared) -> None:
    """Raise DriftError with every expectation that the files do not meet; what is wrong with a whole file, once."""
    plan = prepared.plan
    if not plan.drifts:
        return
    whole = list(dict.fromkeys(f"{drift.file}: {drift.what}" for drift in plan.drifts if not drift.expected))
    found = [*whole, *(str(drift) for drift in plan.drifts if drift.expected)]
    raise DriftError(
        f"{len(found)} expectation(s) of the rules are not met; nothing was written",
        found="\n".join(found),
        hint=OR_MEND if whole else _where_to_look(prepared),
    )


def _where_to_look(prepared: Prepared) -> str:
    from patcher import record as records  # noqa: PLC0415

    own = records.pristine(prepared.target)
    if all(own.get(found.file) for found in prepared.plan.drifts):
        return "these files are the release's own: is the installed vLLM whole? --skip RULE leaves a rule out"
    return "look at the places named; --skip RULE leaves a rule out"


def refuse_findings(prepared: Prepared) -> None:
    """Raise ProofError with every import and call of the planned files that does not fit."""
    if prepared.findings:
        raise ProofError(
            f"{len(prepared.findings)} import(s) or call(s) of the planned files do not fit this vLLM",
            found="\n".join(map(str, prepared.findings)),
            hint=f"nothing was written; {_why_unfit(prepared)}",
        )


def _why_unfit(prepared: Prepared) -> str:
    if len(prepared.rules) < len(rules.load_folder(prepared.rules_folder or rules.default_folder())):
        return "rules are left out by --only or --skip"
    if _modified(prepared):
        return "a file is neither the release's nor what this tool wrote: see `speculators-patch status`"
    return "this vLLM needs a rule that does not exist yet"


def _refuse_modified(prepared: Prepared) -> None:
    if edited := [name for name in _modified(prepared) if name in prepared.changes]:
        raise DriftError(
            "a file is neither the release's nor what this tool wrote: somebody has edited it",
            where=", ".join(str(prepared.target.speculators.base / name) for name in edited),
            hint="--allow-modified patches it all the same; revert gives back what stands there now",
        )


def _modified(prepared: Prepared) -> list[str]:
    from patcher import record as records  # noqa: PLC0415

    by_hash = records.state(prepared.target, records.load(prepared.target))
    return [name for name in prepared.current if by_hash.get(name) == "modified"]


def refuse_unexpected(prepared: Prepared, reviewed: Path) -> None:
    """Raise DriftError unless the change to be made is the one in a diff that was reviewed earlier.

    A tree that is patched already is compared by the diff that patched it.
    """
    from patcher import diff  # noqa: PLC0415

    try:
        with reviewed.open("rb") as stream:
            data = stream.read(diff.MAX_BYTES + 1)
    except OSError as error:
        raise FileError("the reviewed diff can't be read", where=str(reviewed), found=str(error)) from error
    planned = diff.unified(prepared.plan.before, prepared.plan.after)
    if data and not planned:
        raise DriftError(
            "the plan is empty: what the rules want stands already, and was not written by apply",
            where=str(reviewed),
            hint=f"{REINSTALL}, or go without --expect",
        )
    if not diff.same(planned, data, str(reviewed)):
        raise DriftError(
            "the plan is not the diff that was reviewed; nothing was written",
            where=str(reviewed),
            hint="compare it with `speculators-patch diff`, and review again",
        )

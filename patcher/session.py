"""What the commands have in common: find the target, read it, plan, check, and only then write.

Data flows one way: target -> bytes -> facts + rules -> Plan -> conformance -> transaction -> record.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from patcher import rule as rules
from patcher.errors import OR_MEND, DriftError, FileError, RuleError, TargetError
from patcher.refusal import refuse_unable
from patcher.target import Target, locate

if TYPE_CHECKING:
    from patcher.conformance import Finding
    from patcher.facts import Facts
    from patcher.plan import Outcome, Plan
    from patcher.record import Record
    from patcher.rule import Rule
    from patcher.transaction import Healed, Result

PRISTINE, PATCHED, PARTIAL, DRIFTED, NOT_NEEDED = "pristine", "patched", "partial", "drifted", "not-needed"
CAPTURE_HINT = "this release extracts with vLLM's own extract_hidden_states; there is nothing to patch"


@dataclass(frozen=True)
class Choice:
    """What the user chose: the target, the rules, and which release of vLLM to plan for (None: the installed one)."""

    python: Path | None = None
    rules_folder: Path | None = None
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    vllm: str | None = None


@dataclass(frozen=True)
class Prepared:
    """Everything known before anything is written.

    Attributes:
        current: the bytes that stand there now, by name.
        plan: made from the original bytes, which the record keeps once a file is patched: what is written depends on
            the rules and vLLM alone, not on what was applied before.
        shown: the outcomes to show: of the plan, or, where it stands already, of planning the present bytes.
        findings: what does not conform in the planned files.
        healed: what an earlier, killed run had left.
        doubts: what to know of a file beside its state, by name.
    """

    target: Target
    rules: tuple[Rule, ...]
    rules_folder: Path | None
    current: Mapping[str, bytes]
    plan: Plan
    shown: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    states: Mapping[str, str]
    healed: Healed | None = None
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, tuple[bytes, bytes]]:
        """The files to write: name -> (bytes now, bytes planned)."""
        planned = self.plan.after
        return {name: (self.current[name], planned[name]) for name in planned if self.current[name] != planned[name]}


def prepare(choice: Choice, environ: Mapping[str, str] = os.environ) -> Prepared | Target:
    """Find the target and plan; the bare target where its release of speculators has nothing to patch.

    Raises:
        TargetError: no target, one that can't extract, or the recorded facts of a release are asked for and not there.
        DriftError: files of the release are gone.
        RuleError: a rule does not load.
        FileError: a file or the record can't be read.
    """
    target = locate(choice.python, environ, require_vllm=choice.vllm is None)
    chosen = rules.select(rules.load_folder(choice.rules_folder or rules.default_folder()), choice.only, choice.skip)
    if target.missing:
        refuse_unable(target)
        return target
    return _planned(target, chosen, choice)


def located(choice: Choice, environ: Mapping[str, str] = os.environ) -> Target:
    """The target alone: what revert needs, with or without a vLLM."""
    return locate(choice.python, environ, require_vllm=False)


def planned(choice: Choice) -> Prepared:
    """As prepare, for a release that has the files; TargetError for one that has not."""
    found = prepare(choice)
    if isinstance(found, Target):
        raise TargetError(
            f"speculators {found.speculators.version} has nothing to patch",
            where=str(found.speculators.root),
            expected="a release from 0.3.0 to 0.4.0.1",
            hint=CAPTURE_HINT,
        )
    return found


def _planned(target: Target, chosen: tuple[Rule, ...], choice: Choice) -> Prepared:
    from patcher import conformance, plan, transaction  # noqa: PLC0415  LibCST is felt at start-up
    from patcher import record as records  # noqa: PLC0415

    healed = transaction.heal(target)
    record = records.load(target)
    facts = installed_facts(target) if choice.vllm is None else recorded_facts(choice.vllm)
    current = {name: read(target, name) for name in _names(target, chosen)}
    originals = {name: _original(target, record, name, current[name]) for name in current}
    try:
        made = plan.make(originals, chosen, facts)
    except RuleError as error:
        raise _whose_fault(target, error) from error
    stands = made.after == current
    shown = plan.make(current, chosen, facts).outcomes if stands and made.changed else made.outcomes
    findings = () if made.drifts else tuple(conformance.check(made.after, facts))
    by_hash = records.state(target, record)
    states = _states(by_hash, current, made)
    doubts = _doubts(by_hash, record)
    return Prepared(target, chosen, choice.rules_folder, current, made, shown, findings, states, healed, doubts)


def _whose_fault(target: Target, error: RuleError) -> RuleError | DriftError:
    """A rule that gives nonsense on a release's own files is wrong; on other files they may be."""
    from patcher import record as records  # noqa: PLC0415

    modified = [name for name, equal in records.pristine(target).items() if equal is False]
    if not modified or records.load(target) is not None:
        return error
    return DriftError(
        "a rule does not fit this file, which is not the release's own; nothing was written",
        where=", ".join(str(target.path(name)) for name in modified),
        rule=error.rule,
        found=str(error),
        hint=OR_MEND,
    )


def _names(target: Target, chosen: Sequence[Rule]) -> list[str]:
    """The files that the rules may change; those that this release does not have are left to the rules to miss."""
    named = {name: None for rule in chosen for name in rule.files} | dict.fromkeys(target.files)
    return sorted(name for name in named if (target.speculators.base / name).is_file())


def read(target: Target, name: str) -> bytes:
    """The bytes of a file of the package; FileError if they can't be read."""
    path = target.speculators.base / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError("a file can't be read", where=str(path), found=str(error)) from error


def _original(target: Target, record: Record | None, name: str, current: bytes) -> bytes:
    """What stood there before apply, if what stands there now is what apply wrote; else what stands there now."""
    from patcher import record as records  # noqa: PLC0415
    from patcher.disk import sha256  # noqa: PLC0415

    kept = record.of(name) if record else None
    if kept is None or sha256(current) != kept.after:
        return current
    return records.original(target, name, kept).data


def installed_facts(target: Target) -> Facts:
    """The facts of what is installed, read from its source."""
    from patcher.facts import SourceFacts  # noqa: PLC0415

    return SourceFacts(target.roots)


def recorded_facts(version: str) -> Facts:
    """The recorded facts of a vLLM release that is not installed; TargetError names the releases there are."""
    from patcher.facts import RecordedFacts  # noqa: PLC0415

    folder = recorded_folder()
    known = sorted((p.stem for p in folder.glob("*.json")), key=_version_key)
    if version not in known:
        raise TargetError(
            f"no facts are recorded for vLLM {version}",
            expected=", ".join(known) or "none are recorded",
            hint="install that vLLM and plan beside it",
        )
    path = folder / f"{version}.json"
    return RecordedFacts(path.read_bytes(), path.name)


def _version_key(text: str) -> list[int]:
    return [int(part) for part in text.split(".") if part.isdecimal()]


def recorded_folder() -> Path:
    """Where recorded facts are: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "recorded_facts"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "golden" / "facts"


def _doubts(by_hash: Mapping[str, str], record: Record | None) -> dict[str, str]:
    """What the hashes say that no plan does."""
    told = {
        "modified": "neither the release's nor what this tool wrote: apply asks for --allow-modified",
        "unproven": "not listed in RECORD: whether it is the release's own is not known",
    }
    edited = {name for name, state in by_hash.items() if state == "modified" and record and record.of(name)}
    doubts = {name: told[by_hash[name]] for name in sorted(by_hash) if by_hash[name] in told}
    return {**doubts, **dict.fromkeys(sorted(edited), "edited since apply: revert will refuse it")}


def _states(by_hash: Mapping[str, str], current: Mapping[str, bytes], made: Plan) -> dict[str, str]:
    drifted = {found.file for found in made.drifts}
    states = {}
    for name in current:
        if name in drifted:
            states[name] = DRIFTED
            continue
        stands = current[name] == made.after[name]
        known = by_hash.get(name, "pristine")
        if known == "pristine":
            states[name] = NOT_NEEDED if stands else PRISTINE
        else:
            # Where another file has drifted there is no plan, but what the record says of this one holds.
            ours = stands or (known == "patched" and bool(drifted))
            states[name] = PATCHED if ours else PARTIAL if known != "unproven" else PRISTINE
    return states


def sides(prepared: Prepared, *, reverse: bool) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """The two sides of a diff: what stands and what shall; in reverse, what was (or would be) applied, and before."""
    if reverse:
        applied = prepared.current != prepared.plan.before
        return prepared.current if applied else prepared.plan.after, prepared.plan.before
    return prepared.current, prepared.plan.after


def write(prepared: Prepared, tool: str) -> Result:
    """Write the plan in one transaction; files that go back to their originals are reverted."""
    from patcher import transaction  # noqa: PLC0415

    outcomes = {outcome.rule.id: outcome.state for outcome in prepared.plan.outcomes}
    if prepared.changes and not prepared.plan.changed:
        return transaction.revert(prepared.target)
    return transaction.apply(prepared.target, prepared.changes, transaction.Facts(tool, outcomes))


@dataclass(frozen=True)
class Conformance:
    """The files as they stand, judged against a vLLM."""

    target: Target
    findings: tuple[Finding, ...]
    healed: Healed | None = None


def conformance_now(choice: Choice, environ: Mapping[str, str] = os.environ) -> Conformance:
    """Judge the files as they stand now, patched or not; no finding where the release has none of them."""
    from patcher import conformance, transaction  # noqa: PLC0415

    target = locate(choice.python, environ, require_vllm=choice.vllm is None)
    if target.missing:
        refuse_unable(target)
        return Conformance(target, ())
    healed = transaction.heal(target)
    facts = installed_facts(target) if choice.vllm is None else recorded_facts(choice.vllm)
    findings = conformance.check({name: read(target, name) for name in target.files}, facts)
    return Conformance(target, tuple(findings), healed)


def record_facts(vllm_folder: Path, releases: Sequence[Path], transformers_folder: Path) -> bytes:
    """Record all that planning and checking ask of a vLLM, for the pristine and the patched files of some releases.

    Args:
        vllm_folder: the folder of its package.
        releases: folders that hold the package of a speculators release, as site-packages does.
        transformers_folder: the folder of the package of a transformers that this vLLM allows.

    Raises:
        TargetError: a folder is not what it should be.
    """
    from patcher import conformance, plan  # noqa: PLC0415
    from patcher.facts import SourceFacts, record  # noqa: PLC0415

    for folder, package in ((vllm_folder, "vllm"), (transformers_folder, "transformers")):
        if folder.name != package or not (folder / "__init__.py").is_file():
            raise TargetError(f"this is not the folder of the package {package}", where=str(folder))
    known = rules.load_folder(rules.default_folder())
    names = sorted({name for rule in known for name in rule.files})
    file_sets = [{n: (folder / n).read_bytes() for n in names if (folder / n).is_file()} for folder in releases]
    for folder, files in zip(releases, file_sets, strict=True):
        if not files:
            raise TargetError("no release of speculators is in this folder", where=str(folder), expected=names[0])

    def ask(facts: Facts) -> None:
        for files in file_sets:
            patched = plan.make(files, known, facts).after
            conformance.check(files, facts)
            conformance.check(patched, facts)

    roots = {"vllm": vllm_folder, "transformers": transformers_folder}
    return record(SourceFacts(roots), [ask], packages=roots)

"""What the commands print: the same facts as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from patcher.session import Prepared
from patcher.target import Installed, Target

if TYPE_CHECKING:
    from patcher.plan import Outcome
    from patcher.rule import Rule
    from patcher.transaction import Healed, Result
    from patcher.verify import Report


def target_lines(target: Target, rules_folder: Path | None, vllm: str | None = None) -> list[str]:
    """Which environment was chosen and how, what is in it, and whose rules are used."""
    lines = [
        f"target: {target.interpreter} ({target.chosen}), Python {target.python}",
        f"        {_installed(target.speculators)}; {_installed(target.vllm)}",
    ]
    if vllm is not None:
        lines.append(f"        planned for vLLM {vllm}, from recorded facts")
    if rules_folder is not None:
        lines.append(f"rules:  {rules_folder} (yours)")
    return lines


def _installed(package: Installed | None) -> str:
    if package is None:
        return "no vLLM"
    return f"{package.name} {package.version or 'of unknown version'} in {package.base}"


def healed_line(healed: Healed | None) -> list[str]:
    """What an earlier run that was killed had left, and what became of it."""
    return [f"healed: an {healed.action} that was killed was {healed.outcome}"] if healed else []


def outcome_lines(outcomes: Iterable[Outcome], verb: str = "") -> list[str]:
    """One line a rule, the outcomes aligned."""
    return [f"  {verb or o.state:<11} {o.rule.id}: {o.rule.title}" for o in outcomes]


def advice_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """What no rule can do, and what to do instead."""
    return [line for o in outcomes if o.state == "advice" for line in (f"advice: {o.rule.title}", *_advice(o.rule))]


def _advice(rule: Rule) -> list[str]:
    return [f"        {line}" for line in (rule.advice or "").strip().splitlines()]


def state_lines(states: Mapping[str, str]) -> list[str]:
    """One line a file."""
    return [f"  {state:<11} {name}" for name, state in sorted(states.items())]


def done(prepared: Prepared, result: Result | None) -> str:
    """What apply did, in a word or two; with no result, what it would do."""
    return result.outcome if result else "to be written" if prepared.changes else "nothing"


def applied_lines(prepared: Prepared, result: Result | None) -> list[str]:
    """What apply did, rule by rule where it did something; with no result, what it would do."""
    said = done(prepared, result)
    words = {
        "applied": "patched",
        "already": "patched already by another process",
        "reverted": "back to their originals",
        "to be written": "to be patched",
        "nothing": "nothing to do: planned, conforms, and stands already",
    }
    # A file that other rules had changed before may go back to what it was.
    plan = prepared.plan
    given_up = [name for name in sorted(prepared.changes) if plan.after[name] == plan.before[name]]
    changed = [name for name in sorted(prepared.changes) if name not in given_up]
    head = [f"{words[said]}: {', '.join(changed)}"] if changed else []
    head += [f"{words['reverted']}: {', '.join(given_up)}"] if given_up else []
    rules = [o for o in prepared.shown if o.state == "applies" and not prepared.changes.keys().isdisjoint(o.files)]
    proof = ["proof:  planned, conforms (see `speculators-patch verify` for the numbers)"] if prepared.changes else []
    verb = "applied" if said == "applied" else ""
    return [*(head or [words[said]]), *outcome_lines(rules, verb), *proof, *advice_lines(prepared.shown)]


def status_lines(prepared: Prepared) -> list[str]:
    """Files, rules, and what does not conform."""
    findings = [f"does not conform: {finding}" for finding in prepared.findings]
    doubts = [f"{name}: {doubt}" for name, doubt in prepared.doubts.items()]
    return [
        *state_lines(prepared.states),
        *doubts,
        "",
        *outcome_lines(prepared.shown),
        *findings,
        *advice_lines(prepared.shown),
    ]


def reverted_lines(result: Result, foreign: Sequence[str], lost: Sequence[str]) -> list[str]:
    """What revert did; ``foreign``: the files that are not the release's own now; ``lost``: those that are gone."""
    words = {
        "reverted": f"reverted: {', '.join(result.changed)}",
        "cleared": "cleared the record: the files are not what it speaks of (they are the release's own again)",
        "nothing": "nothing to do: nothing is applied here",
    }
    others = [f"not the release's own, and no record of this tool says why: {', '.join(foreign)}"] if foreign else []
    others += [f"gone, although the release has them: {', '.join(lost)}"] if lost else []
    return [*healed_line(result.healed), words[result.outcome], *others]


def reverted_data(target: Target, result: Result, foreign: Sequence[str], lost: Sequence[str]) -> dict[str, Any]:
    """What revert did, for a program."""
    return {
        "target": target_data(target),
        "healed": healed_text(result.healed),
        "result": result.outcome,
        "changed": list(result.changed),
        "foreign": list(foreign),
        "lost": list(lost),
    }


def healed_text(healed: Healed | None) -> str | None:
    """What became of a killed process's work, for a program."""
    return None if healed is None else f"{healed.action} {healed.outcome}"


def rule_lines(rules: Iterable[Rule], *, explained: bool) -> list[str]:
    """One line a rule, or all that its file says in words."""
    if not explained:
        return [f"{rule.id}: {rule.title}" for rule in rules]
    lines: list[str] = []
    for rule in rules:
        links = [f"  see     {link}" for link in rule.links]
        why = rule.why.strip().replace("\n", "\n          ")
        lines += [f"{rule.id}: {rule.title}", f"  why     {why}", f"  symptom {rule.symptom.strip()}", *links]
    return lines


def report_data(report: Report) -> dict[str, Any]:
    """A verification for a program."""
    return {**msgspec.to_builtins(report), "passed": report.passed}


def target_data(target: Target) -> dict[str, Any]:
    """The target for a program."""
    vllm = target.vllm
    return {
        "interpreter": str(target.interpreter),
        "chosen": target.chosen,
        "python": target.python,
        "site_packages": str(target.speculators.base),
        "speculators": target.speculators.version,
        "vllm": None if vllm is None else {"distribution": vllm.name, "version": vllm.version, "root": str(vllm.root)},
    }


def data(prepared: Prepared, **more: object) -> dict[str, Any]:
    """Everything a command knows, for a program."""
    return {
        "target": target_data(prepared.target),
        "rules_folder": str(prepared.rules_folder) if prepared.rules_folder else None,
        "healed": healed_text(prepared.healed),
        "files": [{"path": name, "state": state} for name, state in sorted(prepared.states.items())],
        "doubts": dict(prepared.doubts),
        "rules": [outcome_data(outcome) for outcome in prepared.shown],
        "findings": [str(finding) for finding in prepared.findings],
        "to_change": sorted(prepared.changes),
        **more,
    }


def applied_data(prepared: Prepared, result: Result | None, report: Report | None = None) -> dict[str, Any]:
    """What apply did, and what its extraction found, for a program. ``files`` and ``to_change`` speak of before."""
    taken_back = result and result.outcome == "applied" and report and not report.passed
    said = "taken back" if taken_back else done(prepared, result)
    facts = data(prepared, result=said, changed=list(result.changed) if result else [])
    return facts if report is None else {**facts, "verify": report_data(report)}


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """A rule's outcome for a program."""
    return {
        "id": outcome.rule.id,
        "outcome": outcome.state,
        "title": outcome.rule.title,
        "files": list(outcome.files),
        "drifts": [str(found) for found in outcome.drifts],
        "advice": outcome.rule.advice,
    }


def as_json(value: object) -> str:
    """Indented JSON in ASCII, which is right in every locale; keys as written."""
    return json.dumps(value, indent=2)

"""What the rules give for real releases: computed here, kept in golden/, compared by test_golden.py.

    python -m tests.golden          writes golden/rules and golden/pairs afresh, and says which files changed
    python -m tests.golden --facts  writes golden/facts afresh, from the 35 releases of vLLM (downloads them)

golden/facts/VLLM.json           what the rules and checks ask of a release of vLLM
golden/rules/RULE.diff           what each rule does by itself, to each release it applies to
golden/pairs/SPECULATORS/VLLM    outcomes and hashes of a pair, and where its diff is
golden/diffs/HASH.diff           the diffs of the pairs without context; many pairs share one
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from patcher import diff, plan, rule, session
from patcher.facts import RecordedFacts
from patcher.plan import Plan
from patcher.rule import Rule

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
FACTS = GOLDEN / "facts"
SPECULATORS = ("0.3.0", "0.4.0", "0.4.0.1")


def vllm_releases() -> list[str]:
    """The releases whose facts are recorded, oldest first."""
    return sorted((path.stem for path in FACTS.glob("*.json")), key=version_key)


def version_key(text: str) -> tuple[int, ...]:
    """For sorting: 0.9 before 0.11; ``post`` releases by their number."""
    return tuple(int(part) for part in text.replace("post", "").split(".") if part.isdecimal())


@lru_cache
def rules() -> tuple[Rule, ...]:
    """The rules of this checkout, in order."""
    return rule.load_folder(rule.default_folder())


@lru_cache
def facts(vllm: str) -> RecordedFacts:
    """The recorded facts of a release."""
    return RecordedFacts.read(FACTS / f"{vllm}.json")


@lru_cache
def originals(speculators: str) -> Mapping[str, bytes]:
    """The released files that the rules may change, from PyPI."""
    from tests.releases import package_files

    names = sorted({name for known in rules() for name in known.files})
    return package_files(speculators, names)


def pair(speculators: str, vllm: str) -> Plan:
    """The plan of all rules for a pair."""
    return plan.make(originals(speculators), rules(), facts(vllm))


def all_files() -> dict[str, bytes]:
    """Every golden file but the facts: path in golden/ -> content."""
    return {**dict(_pair_files()), **dict(_rule_files())}


def _pair_files() -> Iterator[tuple[str, bytes]]:
    for speculators in SPECULATORS:
        for vllm in vllm_releases():
            made = pair(speculators, vllm)
            text = diff.unified(made.before, made.after, context=0)
            name = f"diffs/{hashlib.sha256(text).hexdigest()[:12]}.diff"
            yield name, text
            yield f"pairs/{speculators}/{vllm}", _pair_text(made, name)


def _pair_text(made: Plan, diff_name: str) -> bytes:
    lines = [f"{outcome.rule.id}: {outcome.state}" for outcome in made.outcomes]
    for name in made.before:
        lines.append(f"before {_sha256(made.before[name])} {name}")
        lines.append(f"after  {_sha256(made.after[name])} {name}")
    return ("\n".join([*sorted(lines[: len(made.outcomes)]), *lines[len(made.outcomes) :], diff_name]) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _rule_files() -> Iterator[tuple[str, bytes]]:
    for known in rules():
        yield f"rules/{known.id}.diff", _rule_text(known)


def _rule_text(known: Rule) -> bytes:
    """Each different diff of a rule once, under the pairs that it is for."""
    sections: dict[bytes, list[str]] = {}
    for speculators in SPECULATORS:
        for vllm in vllm_releases():
            text = alone(known, speculators, vllm)
            if text:
                sections.setdefault(text, []).append(f"{speculators} on {vllm}")
    parts = [f"# speculators {_compact(pairs)}\n".encode() + text for text, pairs in sections.items()]
    return b"\n".join(parts) or b"# changes nothing in any pair\n"


def _compact(pairs: Sequence[str]) -> str:
    by_release: dict[str, list[str]] = {}
    for text in pairs:
        speculators, _, vllm = text.partition(" on ")
        by_release.setdefault(speculators, []).append(vllm)
    return "; ".join(f"{release} on {', '.join(versions)}" for release, versions in by_release.items())


def alone(known: Rule, speculators: str, vllm: str) -> bytes:
    """The diff of one rule by itself; one that needs or follows others is planned on top of those.

    The rule is planned a second time on its own result, which must not change.
    """
    base = _below(known)
    start = plan.make(originals(speculators), base, facts(vllm)).after
    made = plan.make(start, (known,), facts(vllm))
    again = plan.make(made.after, (known,), facts(vllm))
    if made.drifts or again.changed:
        raise AssertionError(f"{known.id} on {speculators}, {vllm}: {made.drifts or 'changes its own result'}")
    return diff.unified(made.before, made.after, context=1)


@lru_cache
def _below(known: Rule) -> tuple[Rule, ...]:
    """The rules that one needs or comes after, and theirs, in order."""
    by_id = {each.id: each for each in rules()}
    wanted: set[str] = set()
    open_ids = [*known.needs, *known.after]
    while open_ids:
        name = open_ids.pop()
        if name not in wanted:
            wanted.add(name)
            open_ids += [*by_id[name].needs, *by_id[name].after]
    return tuple(each for each in rules() if each.id in wanted)


def on_disk() -> dict[str, bytes]:
    """The golden files as they are kept."""
    folders = ("pairs", "diffs", "rules")
    paths = [path for folder in folders for path in (GOLDEN / folder).rglob("*") if path.is_file()]
    return {path.relative_to(GOLDEN).as_posix(): path.read_bytes() for path in paths}


def write(files: Mapping[str, bytes]) -> list[str]:
    """Make golden/ hold just these files; the names of those that changed."""
    kept = on_disk()
    for name in kept.keys() - files.keys():
        (GOLDEN / name).unlink()
    changed = sorted(name for name in files if kept.get(name) != files[name]) + sorted(kept.keys() - files.keys())
    for name in changed:
        if name in files:
            path = GOLDEN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
    return changed


def write_facts() -> None:
    """Record the facts of every known release of vLLM."""
    from tests.releases import VLLM_RELEASES, speculators_folder, transformers_for, vllm_tree

    folders = [speculators_folder(version) for version in SPECULATORS]
    for version in VLLM_RELEASES:
        transformers = transformers_for(version) / "transformers"
        data = session.record_facts(vllm_tree(version) / "vllm", folders, transformers)
        (FACTS / f"{version}.json").write_bytes(data)
        print(version, len(data), flush=True)


if __name__ == "__main__":
    if "--facts" in sys.argv[1:]:
        write_facts()
    for changed_name in write(all_files()):
        print("changed:", changed_name)

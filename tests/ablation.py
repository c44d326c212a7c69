"""What the absence of each rule shows, on a real vLLM.

    python -m tests.ablation            leaves out each rule in turn and extracts; writes golden/ablation.json
    python -m tests.ablation RULE ...   only these

A rule is left out by planning without it (what needs it goes too) and writing the rest: `apply --skip` itself would
stop at conformance where a call no longer binds, which is also recorded.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from patcher import environment, refusal, rule, session, transaction
from patcher.target import locate
from patcher.verify import Report, verify
from patcher.verify.report import GOOD
from tests.helpers import kept_folder
from tests.real import refusals

RECORD = Path(__file__).resolve().parent.parent / "golden" / "ablation.json"


@dataclass(frozen=True)
class Symptom:
    """Where the absence of a rule shows, and as what.

    Args:
        rule: the rule left out.
        shows: a regular expression that finds the error or the verdict, in a line a row: name, verdict, remark.
        speculators, vllm: the pair.
        family: the tiny model.
        sessions, batches: what is run; the same for many rules, whose controls are then one run.
        refusals: run what a generator must refuse, in place of an extraction.
        alone: the rules that need this one stay in.
    """

    rule: str
    shows: str
    speculators: str = "0.3.0"
    vllm: str = "0.16.0"
    family: str = "llama"
    sessions: tuple[str, ...] = ("default",)
    batches: tuple[str, ...] = ("one", "mixed", "again")
    refusals: bool = False
    alone: bool = False

    def lines(self, interpreter: Path) -> list[str]:
        """What the run says, a line for each thing; nothing where an extraction is right."""
        if self.refusals:
            return [f"{name}: {said}" for name, said in refusals.outcomes(interpreter).items()]
        report = _run(interpreter, self.family, self.sessions, self.batches)
        return [] if report.passed else lines(report)


NO_HASHES = r"prefix-caching/mixed error .*AssertionError"

# The cascade: what 0.3.0 shows on 0.16.0 as one break after the other is mended, in that order.
CASCADE = (
    Symptom("scheduler-config-encoder-decoder", r"ValidationError.*SchedulerConfig|is_encoder_decoder"),
    Symptom("kv-cache-specs-argument", r"TypeError: .*kv_cache_specs"),
    Symptom("scheduler-block-size", r"TypeError: .*missing 1 required positional argument: 'block_size'"),
    Symptom("memory-query", r"RuntimeError: .*(NVIDIA driver|Torch not compiled with CUDA)"),
    Symptom("own-forward", r"get_input_embeddings"),
    Symptom("request-rows", r"Boolean value of Tensor with more than one value is ambiguous"),
    Symptom("none-hash", r"NameError: .*NONE_HASH"),
    Symptom("prefix-caching-off", r"default/again error .*cached prefix"),
)
OTHERS = (
    Symptom("two-phase-step", r"sample_tokens\(\) must be called"),
    Symptom("request-block-hasher", NO_HASHES, sessions=("prefix-caching",)),
    Symptom("block-hasher", NO_HASHES, sessions=("prefix-caching",)),
    Symptom("none-hash-once", r"twin-second/hash-seed wrong NONE_HASH changed", sessions=("twin",)),
    Symptom("layer-order", r"order/mixed wrong", sessions=("order",)),
    Symptom("eagle3-gate", r"does not support hidden state extraction", family="deepseek_v2"),
    Symptom("base-model", r"object has no attribute 'model'", family="kimi_k25"),
    Symptom("max-batched-tokens", r"chunked/start skipped", sessions=("chunked",)),
    Symptom("request-eos-token", r"TypeError: .*eos_token_id", speculators="0.4.0.1", vllm="0.20.2"),
    Symptom(
        "hash-function-module", r"No module named 'vllm.utils.hashing'", speculators="0.4.0.1", vllm="0.11.0.post2"
    ),
    Symptom(
        "scheduler-defaults",
        r"chunked/start error .*max_num_batched_tokens \(64\) is smaller than max_model_len",
        vllm="0.11.0.post2",
        sessions=("chunked",),
    ),
    Symptom("pydantic-torch", r"name 'torch' is not defined", vllm="0.32.0"),
    Symptom("kv-cache-layout", r"ValueError.*layout", vllm="0.32.0"),
    Symptom("back-end-block-size", r"No common block size for 16", vllm="0.32.0"),
    Symptom("check-prompts", r"token outside: no error", refusals=True),
    Symptom(
        "layer-specs",
        r"default/start error .*AssertionError",
        speculators="0.4.0.1",
        vllm="0.32.0",
        family="gemma4_text",
    ),
    Symptom("float16-scale", r"scaled states: no error", refusals=True),
    Symptom("failed-generator", r"after a failure: (?!.*This generator has failed)", refusals=True),
    Symptom("shutdown-once", r"failing shutdown: (?!.*a queue is gone)", refusals=True),
    Symptom("unsupported-model", r"hybrid: (?!.*Mamba or linear attention)", refusals=True),
    Symptom("tokenizer-remote-code", r"tokenizer with code: (?!.*Layer index 99)", refusals=True),
    Symptom(
        "group-block-size",
        r"prefix-caching/start error .*hash_block_size == block_size",
        speculators="0.4.0.1",
        vllm="0.20.2",
        sessions=("prefix-caching",),
        alone=True,
    ),
    Symptom(
        "sliding-block-size", r"ValueError: .*failed to convert the KV cache specs", vllm="0.26.0", family="gemma2"
    ),
)
# What no CPU build of vLLM can miss, and why.
ELSEWHERE = {
    "spawn-workers": "forked workers can use a CPU; `python -m tests.gpu` shows both (fork)",
    "block-stride": "a GPU's back ends only; `python -m tests.gpu --proofs without`",
    "layer-windows": "a GPU's back ends only; `python -m tests.gpu --proofs without`",
    "kv-cache-planning-module": "from vLLM 0.33 on, which has no CPU build: `check` finds the import that is missing",
}
SYMPTOMS = {symptom.rule: symptom for symptom in (*CASCADE, *OTHERS)}


@dataclass(frozen=True)
class Shown:
    """What leaving a rule out showed; with it, the same run does not."""

    rule: str
    pair: str
    family: str
    symptom: str
    conforms: bool
    seconds: float


def show(symptom: Symptom, environ_folder: Path | None = None) -> Shown:
    """Leave the rule out, run, look for the symptom; then put it in, run, and see it right.

    Raises:
        AssertionError: the symptom does not show, or shows with the rule in too.
    """
    began = time.monotonic()
    interpreter = interpreter_of(symptom.speculators, symptom.vllm, environ_folder)
    with rules_for(symptom) as rules, written(interpreter, (symptom.rule,), rules) as prepared:
        conforms = not prepared.findings
        rows = symptom.lines(interpreter)
    found = next((line for line in rows if re.search(symptom.shows, line)), None)
    if found is None:
        raise AssertionError(f"leaving out {symptom.rule} does not show {symptom.shows!r}:\n" + "\n".join(rows))
    against = control(symptom, interpreter)
    if any(re.search(symptom.shows, line) for line in against) or not (symptom.refusals or against == ()):
        raise AssertionError(f"with {symptom.rule} in, the same run is not right either:\n" + "\n".join(against))
    pair = f"{symptom.speculators} on {symptom.vllm}"
    return Shown(symptom.rule, pair, symptom.family, found, conforms, round(time.monotonic() - began, 1))


def control(symptom: Symptom, interpreter: Path) -> tuple[str, ...]:
    """What the same run says with all rules in. Asked once for each kind of run."""
    return _control(interpreter, replace(symptom, rule="", shows=""))


@lru_cache
def _control(interpreter: Path, run: Symptom) -> tuple[str, ...]:
    with written(interpreter, ()):
        return tuple(run.lines(interpreter))


def _run(interpreter: Path, family: str, sessions: tuple[str, ...], batches: tuple[str, ...]) -> Report:
    kept = kept_folder(interpreter)
    return verify(interpreter, family=family, sessions=sessions, batches=batches, time_limit=300, keep=kept)


def lines(report: Report) -> list[str]:
    """One line a row that is not right: name, verdict, remark; the whole error, since vLLM wraps the cause."""
    told = []
    for row in report.rows:
        if row.verdict not in GOOD or row.note or row.verdict == "skipped":
            error = f"{row.error.type}: {row.error.text} {row.error.traceback[-3000:]}" if row.error else ""
            told.append(f"{row.name} {row.verdict} {row.note or ''} {error}".replace("\n", " "))
    return told or [report.log_tail[-3000:].replace("\n", " ")]


@lru_cache
def interpreter_of(speculators: str, vllm: str, folder: Path | None = None) -> Path:
    """The interpreter of a real environment of the pair, made if need be, as it was installed."""
    found = environment.make(folder, vllm=vllm, speculators=speculators, python=None, progress=_say)
    transaction.revert(locate(found, os.environ))  # what a run that was killed has left
    return found


@contextmanager
def rules_for(symptom: Symptom) -> Iterator[Path]:
    """The folder of rules; for a rule that is left out alone, a copy in which no rule needs it."""
    if not symptom.alone:
        yield rule.default_folder()
        return
    with tempfile.TemporaryDirectory(prefix="speculators-patch-rules-") as folder:
        for source in rule.default_folder().glob("*.toml"):
            text = re.sub(rf'^(needs = \[.*?)"{symptom.rule}"(?:, )?', r"\1", source.read_text(), flags=re.MULTILINE)
            Path(folder, source.name).write_text(text)
        yield Path(folder)


@contextmanager
def written(interpreter: Path, skip: Sequence[str], rules: Path | None = None) -> Iterator[session.Prepared]:
    """Have the rules, but these, written for as long as it lasts; conformance is not asked."""
    known = {each.id for each in rule.load_folder(rule.default_folder())}
    unknown = set(skip) - known
    if unknown:
        raise AssertionError(f"no rule is called {unknown}")
    prepared = session.planned(session.Choice(interpreter, rules, skip=tuple(skip)))
    refusal.refuse_drift(prepared)
    session.write(prepared, "tests")
    try:
        yield prepared
    finally:
        transaction.revert(prepared.target)


def without_folders(text: str) -> str:
    """A traceback without the folders of this machine: files are told from their package, or the payload, on."""
    return re.sub(r'"/[^" ]*/(?=(?:speculators|vllm|site-packages|payload)/)', '"', text)


def _say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def main(names: Sequence[str]) -> int:
    """Show each symptom; what is known of the others stays in the record."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    failed = 0
    for symptom in SYMPTOMS.values():
        if names and symptom.rule not in names:
            continue
        print(f"{symptom.rule} ({symptom.speculators} on {symptom.vllm}) ...", flush=True)
        try:
            shown = show(symptom)
        except AssertionError as error:
            print(f"  NOT SHOWN: {error}", flush=True)
            failed += 1
            continue
        print(f"  {shown.symptom[:160]}", flush=True)
        record[shown.rule] = {
            "pair": shown.pair,
            "family": shown.family,
            "symptom": without_folders(shown.symptom)[:400],
            "apply --skip stops at conformance": not shown.conforms,
            "seconds": shown.seconds,
        }
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What is shown beside the extractions of each family: before and after, the fork fault, several ranks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from patcher.verify import process
from patcher.verify.report import Report
from tests import ablation
from tests.gpu import one, overlay
from tests.gpu.record import Proof

PAYLOAD = overlay.ROOT / "patcher" / "verify" / "payload"
SCRIPTS = Path(__file__).parent / "target"
UNMENDED = "the same without the rule spawn-workers fails"
FORKED = "Cannot re-initialize CUDA in forked subprocess"
# A sum over two ranks rounds otherwise than one over one: bfloat16, a row (see the payload's compare.py).
WORST_MEDIAN = 0.06
WORST_ROW = {"llama": 0.06}
ROUTED_ROW = 1.0


def fails(name: str, interpreter: Path, folder: Path, seconds: float) -> Proof:
    """``verify`` on files that are not, or not wholly, patched must fail, and for what it finds: not for its time."""
    done = _verify(interpreter, folder, seconds)
    said = _ended(done)
    return Proof(name, done.returncode == 5 and "time limit" not in said, said)


def after(interpreter: Path, patched: Path, seconds: float) -> Proof:
    """``verify`` on the applied files must pass."""
    done = _verify(interpreter, patched, seconds)
    return Proof("verify after apply", done.returncode == 0, _ended(done))


def _verify(interpreter: Path, folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    words = ("verify", "-p", interpreter, "--time-limit", f"{max(seconds, 1):.0f}")
    return overlay.tool(*words, folder=folder, seconds=max(seconds, 1) + 60)


def without(rule: str, family: str, shows: str, interpreter: Path, folder: Path, seconds: float) -> Proof:
    """A rule that only a GPU misses is left out: its symptom must show."""
    name = f"without {rule}: {family}"
    failed = refused(name, interpreter, folder, "--skip", rule)
    if failed:
        return failed
    job = one.Job(str(interpreter), family, sessions=("default",), seconds=seconds)
    text = one.start(job, folder).stdout
    try:
        report = msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError:
        return Proof(name, passed=False, said=text.decode(errors="replace")[-900:])
    found = next((line for line in ablation.lines(report) if re.search(shows, line)), None)
    return Proof(name, found is not None, ablation.without_folders(found)[:400] if found else report.table()[-900:])


def refused(name: str, interpreter: Path, folder: Path, *options: str) -> Proof | None:
    """Apply a part of the rules: nothing if that went well, else the proof of this name, which has failed."""
    done = overlay.tool("apply", "-p", interpreter, *options, folder=folder)
    return Proof(name, passed=False, said=_ended(done)) if done.returncode else None


def vllm_version(interpreter: Path, folder: Path) -> str:
    """The version of vLLM that the target imports.

    Raises:
        RuntimeError: ``status`` does not say.
    """
    done = overlay.tool("status", "-p", interpreter, "--format", "json", folder=folder)
    try:
        return str(json.loads(done.stdout)["target"]["vllm"]["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(_ended(done)) from error


def apply(interpreter: Path, folder: Path) -> tuple[list[Proof], dict[str, str]]:
    """Apply, apply again (nothing to do), and check: what was shown, and each rule's outcome."""
    first = overlay.tool("apply", "-p", interpreter, "--format", "json", folder=folder)
    if first.returncode:
        return [Proof("apply", passed=False, said=_ended(first))], {}
    found = json.loads(first.stdout)
    rules = {rule["id"]: rule["outcome"] for rule in found["rules"]}
    second = overlay.tool("apply", "-p", interpreter, "--format", "json", folder=folder)
    again = second.returncode == 0 and not json.loads(second.stdout)["changed"]
    checked = overlay.tool("check", "-p", interpreter, folder=folder)
    return [
        Proof("apply", passed=True, said=", ".join(found["changed"])),
        Proof("apply again changes nothing", again, "" if again else _ended(second)),
        Proof("check after apply", checked.returncode == 0, _ended(checked)),
    ], rules


def fork(interpreter: Path, folder: Path, model: Path, *, mended: bool) -> Proof:
    """speculators imported first, nothing set: the workers must start if the rule is in, and only then."""
    text = _run([interpreter, SCRIPTS / "import_first.py", model], overlay.environment(folder))
    if mended:
        return Proof("speculators imported first: workers start", "extracted [" in text, _line(text, "extracted ["))
    said = FORKED if FORKED in text else _line(text, "extracted [")
    return Proof(UNMENDED, FORKED in text, said)


def ranks(interpreter: Path, folder: Path, model: Path, family: str, size: int) -> Proof:
    """The states of several ranks equal those of one; NONE_HASH and the block hashes are the same on every rank."""
    variables = {**overlay.environment(folder), "PYTHONHASHSEED": "0"}
    text = _run([interpreter, SCRIPTS / "ranks.py", PAYLOAD, model, str(size)], variables)
    name = f"{family}: {size} ranks equal one, and hash alike"
    if text.count("===ranks===") != 2:
        return Proof(name, passed=False, said=_line(text, "Error"))
    found = json.loads(text.split("===ranks===")[1])
    own, every = found["own"], found["ranks"]
    alike = all((rank["drawn"], rank["hashes"]) == (own["none_hash"], own["hashes"]) for rank in every)
    alike = alike and own == found["own_of_one"] and len(every) == size and bool(own["hashes"])
    equal = found["worst"] <= WORST_ROW.get(family, ROUTED_ROW) and found["median"] <= WORST_MEDIAN
    said = (
        f"NONE_HASH {own['none_hash'][:16]}, {len(own['hashes'])} blocks of {found['block_size']} tokens hash alike"
        f" on {len(every)} ranks and in the generator: {alike}"
    )
    numbers = {key: round(found[key], 5) for key in ("worst", "median")}
    return Proof(name, alike and equal, said, numbers)


@contextlib.contextmanager
def tiny_model(interpreter: Path, folder: Path, family: str) -> Iterator[Path]:
    """A tiny model, for the scripts that take one."""
    model = folder / f"model-{family}"
    _run([interpreter, PAYLOAD / "models.py", "--family", family, "--out", model], dict(os.environ))
    try:
        yield model
    finally:
        shutil.rmtree(model, ignore_errors=True)


def _run(command: list[str | Path], variables: dict[str, str], seconds: float = 300) -> str:
    """Everything that a command and its workers print."""
    lines: list[str] = []
    process.run(
        command,
        environment={**variables, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
        folder=overlay.ROOT,
        time_limit=seconds,
        line=lines.append,
    )
    return "\n".join(lines)


def _line(text: str, wanted: str) -> str:
    """The last line with a text in it, else the end of all."""
    lines = [line for line in text.splitlines() if wanted in line]
    return lines[-1].strip()[-300:] if lines else text[-600:]


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    """How a command ended: its last line, and its rows that are wrong."""
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    wrong = [line.strip()[:200] for line in lines if "  wrong" in line or "  error" in line]
    return " | ".join([f"exit {done.returncode}", *wrong[:4], *lines[-1:]])[:900]

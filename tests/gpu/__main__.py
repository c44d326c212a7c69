"""Apply, extract and compare on a machine with a GPU and a CUDA vLLM, and keep what was found.

    python -m tests.gpu -p ENV --out golden/gpu

Works on a copy of the speculators that ENV has (or of each ``--speculators`` folder), which is put first on the
target's path: the environment itself is not changed. Cells that are in the record are replaced, others stay.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec

from patcher.target import locate
from patcher.verify.report import Report
from tests import matrix
from tests.gpu import one, overlay, proofs, record
from tests.gpu.record import Cell, Proof, Record

FAMILIES = ("llama", "qwen3", "qwen3_moe", "gpt_oss", "gemma2", "deepseek_v2", "deepseek_v3", "kimi_k25")
RANKED = ("llama", "deepseek_v3")
PROOFS = ("before", "after", "fork", "ranks", "without")
# Rules that only a GPU misses: a family, and what verify prints without the rule.
ON_A_GPU_ONLY = {
    "block-stride": ("gemma2", "must have the same attention spec"),
    "layer-windows": ("gemma2", r"default/(mixed|fifty|long) wrong"),
}
LEAST_SECONDS = 45.0
# vLLM looks for a free port, lets go of it and takes it again.
PORT_TAKEN = "EADDRINUSE"
# With these, 0.4.x starts on a recent vLLM, and what is wrong on a GPU can be seen.
STARTING = ("pydantic-torch", "request-eos-token")


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    interpreter: Path
    families: tuple[str, ...]
    runners: tuple[str, ...]
    sessions: tuple[str, ...] | None
    other_sessions: tuple[str, ...] | None
    proofs: tuple[str, ...]
    tp: int
    out: Path
    ends: float  # time.monotonic() at which everything must be over

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.ends - time.monotonic()


def say(text: str) -> None:
    """A line of progress."""
    click.echo(f"[{time.strftime('%H:%M:%S')}] {text}", err=True)


class Run:
    """One release of speculators on the installed vLLM: its copies, its record, its work."""

    def __init__(self, source: Path, scratch: Path, options: Options, device: str) -> None:
        self.options = options
        self.source = source
        self.version = overlay.release(source)
        self.patched = overlay.copy(source, scratch / f"patched-{self.version}")
        self.pristine = overlay.copy(source, scratch / f"pristine-{self.version}")
        self.starting = overlay.copy(source, scratch / f"starting-{self.version}")
        self.forking = overlay.copy(source, scratch / f"forking-{self.version}")
        self.scratch = scratch / f"work-{self.version}"
        self.scratch.mkdir()
        vllm = proofs.vllm_version(options.interpreter, self.patched)
        self.record: Record = record.load(options.out, vllm, self.version)
        self.record.device = device
        self.writing = threading.Lock()

    def keep(self, found: Cell | Proof) -> None:
        """Tell, and write the record."""
        with self.writing:
            self.record.add(found)
            record.save(self.options.out, self.record)
        verdict = "passed" if found.passed else "FAILED"
        if isinstance(found, Proof):
            say(f"{self.version} {found.name}: {verdict}: {found.said} {found.numbers or ''}")
            return
        worst = "" if found.worst is None else f", worst row {found.worst:.2%}"
        runner = f"{found.asked} runner ({found.runner}, {' '.join(found.attention)})"
        failed = f": {found.failed}" if found.failed else ""
        say(f"{self.version} {found.family}, {runner}, tp {found.tp}: {verdict}{worst}, {found.seconds:.0f} s{failed}")

    def apply(self) -> bool:
        """Apply to the copy; whether that went well."""
        shown, self.record.rules = proofs.apply(self.options.interpreter, self.patched)
        for proof in shown:
            self.keep(proof)
        return all(proof.passed for proof in shown)

    def work(self) -> Iterable[Callable[[], None]]:
        """Everything to do, the longest first."""
        asked = self.options
        for family, runner in itertools.product(asked.families, asked.runners):
            yield lambda family=family, runner=runner: self.cell(family, runner)  # type: ignore[misc]
        shown = {"before": self.before, "after": self.after, "fork": self.fork, "ranks": self.ranks}
        yield from (shown[name] for name in asked.proofs if name != "without")
        if "without" in asked.proofs:
            for rule in ON_A_GPU_ONLY:
                if self.record.rules.get(rule) == "applies":
                    yield lambda rule=rule: self.without(rule)  # type: ignore[misc]

    def cell(self, family: str, runner: str) -> None:
        """Verify one family with one model runner."""
        found = self._verified(family, runner)
        if found and found.failed and PORT_TAKEN in found.failed:
            say(f"{self.version} {family}, {runner}: once more, a process beside it has taken its port")
            found = self._verified(family, runner)
        if found:
            self.keep(found)
        else:
            say(f"{self.version} {family}, {runner}: not run, no time is left")

    def _verified(self, family: str, runner: str) -> Cell | None:
        began = time.monotonic()
        asked = self.options
        sessions = asked.sessions if runner == "default" else asked.other_sessions
        if asked.left < LEAST_SECONDS:
            return None
        job = one.Job(str(asked.interpreter), family, asked.tp, sessions, asked.left - 15)
        done = one.start(job, self.patched, runner=runner)
        log = self.options.out / "logs" / f"{self.record.name}-{family}-{runner}-{asked.tp}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(done.stderr + b"\n" + done.stdout[-200_000:])
        return self._read(done.stdout, family, runner, time.monotonic() - began)

    def _read(self, text: bytes, family: str, runner: str, seconds: float) -> Cell:
        try:
            report = msgspec.json.decode(text, type=Report)
        except msgspec.DecodeError:
            failed = text.decode(errors="replace")[-1500:]
            return Cell(family=family, asked=runner, tp=self.options.tp, passed=False, failed=failed or "no answer")
        self.record.versions = {**report.versions, "python": report.python}
        return record.cell(report, family=family, asked=runner, tp=self.options.tp, seconds=seconds)

    def before(self) -> None:
        """``verify`` fails on the files as they were released, and on 0.4.x with the rules that only let it start."""
        interpreter, left = self.options.interpreter, self.options.left - 15
        self.keep(proofs.fails("verify before apply", interpreter, self.pristine, left))
        if self.version == "0.3.0":  # it calls too much that has changed to start with few rules
            return
        name = f"verify with {' and '.join(STARTING)} only"
        chosen = [word for rule in STARTING for word in ("--only", rule)]
        refused = proofs.refused(name, interpreter, self.starting, *chosen)
        self.keep(refused or proofs.fails(name, interpreter, self.starting, left))

    def after(self) -> None:
        """``verify`` passes on the applied files."""
        self.keep(proofs.after(self.options.interpreter, self.patched, self.options.left - 15))

    def fork(self) -> None:
        """The fault of forked workers, without and with the rule that mends it."""
        with proofs.tiny_model(self.options.interpreter, self.scratch / "fork", "llama") as model:
            self.keep(proofs.fork(self.options.interpreter, self.patched, model, mended=True))
            left_out = ("--skip", "spawn-workers")
            refused = proofs.refused(proofs.UNMENDED, self.options.interpreter, self.forking, *left_out)
            self.keep(refused or proofs.fork(self.options.interpreter, self.forking, model, mended=False))

    def without(self, rule: str) -> None:
        """What a rule that only a GPU misses is for."""
        family, shows = ON_A_GPU_ONLY[rule]
        folder = overlay.copy(self.source, self.scratch / f"without-{rule}")
        left = self.options.left - 15
        self.keep(proofs.without(rule, family, shows, self.options.interpreter, folder, left))

    def ranks(self) -> None:
        """Several ranks give the states and the hashes of one."""
        size = max(2, self.options.tp)
        for family in RANKED:
            with proofs.tiny_model(self.options.interpreter, self.scratch / "ranks", family) as model:
                self.keep(proofs.ranks(self.options.interpreter, self.patched, model, family, size))


def device() -> str:
    """The GPUs and their driver, in words."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return "no GPU"
    found = [", driver ".join(part.strip() for part in line.split(",")) for line in lines if line.strip()]
    return f"{len(found)} x {found[0]}" if found else "no GPU"


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(filter(None, text.split(","))) if text is not None else None


def _known(parameter: click.Parameter, text: str, known: Iterable[str]) -> tuple[str, ...]:
    """The words of an option that has a list of them.

    Raises:
        click.BadParameter: a word that is not in the list.
    """
    words = _words(text) or ()
    for word in words:
        if word not in known:
            raise click.BadParameter(f"{word!r} is none of {', '.join(known)}", param=parameter)
    return words


@click.command(help=__doc__)
@click.option("-p", "--python", type=click.Path(path_type=Path), help="The target: an interpreter or an environment.")
@click.option("--speculators", "sources", multiple=True, type=click.Path(path_type=Path), help="An unpacked release.")
@click.option("--families", default=",".join(FAMILIES), show_default=True)
@click.option(
    "--runners",
    default=",".join(record.RUNNERS),
    callback=lambda _, option, text: _known(option, text, record.RUNNERS),
    show_default=True,
)
@click.option("--sessions", help="Generators of a cell with the default runner; all by default.")
@click.option("--other-sessions", default="default,order", show_default=True, help="Of a cell with a chosen runner.")
@click.option(
    "--proofs",
    "shown",
    default="before,after,fork",
    callback=lambda _, option, text: _known(option, text, PROOFS),
    show_default=True,
    help=f"Of {', '.join(PROOFS)}.",
)
@click.option("--tp", default=1, show_default=True, help="Tensor parallel size.")
@click.option("--jobs", default=4, show_default=True, help="How many extractions run side by side.")
@click.option("--limit", default=3600.0, show_default=True, help="Seconds for everything.")
@click.option("--table", is_flag=True, help="Put the table of golden/gpu into the README, print it, and run nothing.")
@click.option("--out", type=click.Path(path_type=Path), default=record.FOLDER, show_default=True)
def main(
    *,
    python: Path | None,
    sources: tuple[Path, ...],
    families: str,
    runners: tuple[str, ...],
    sessions: str | None,
    other_sessions: str,
    shown: tuple[str, ...],
    tp: int,
    jobs: int,
    limit: float,
    table: bool,
    out: Path,
) -> None:
    """Run what was asked for; exit with 1 if anything failed."""
    if table:
        matrix.into_readme("gpu", record.table())
        return
    # Side by side, torch's threads would wait for each other more than they compute.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    target = locate(python, os.environ, require_vllm=False) if not sources or python else None
    asked = Options(
        interpreter=target.interpreter if target else Path(sys.executable),
        families=_words(families) or (),
        runners=runners,
        sessions=_words(sessions),
        other_sessions=_words(other_sessions),
        proofs=shown,
        tp=tp,
        out=out.absolute(),
        ends=time.monotonic() + limit,
    )
    folders = sources or ((target.speculators.base,) if target else ())
    with tempfile.TemporaryDirectory(prefix="speculators-patch-gpu-") as scratch:
        runs = [Run(folder.absolute(), Path(scratch), asked, device()) for folder in folders]
        ready = [run for run in runs if run.apply()]
        with ThreadPoolExecutor(jobs) as pool:
            for task in [pool.submit(step) for run in ready for step in run.work()]:
                task.result()
    failed = sum(run.record.failed for run in runs)
    say(f"{failed} failed" if failed else "all passed")
    sys.exit(1 if failed or not runs else 0)


if __name__ == "__main__":
    main()

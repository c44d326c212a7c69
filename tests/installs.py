"""Tiny installs for the tests: hand-made wheels of a fake speculators and a fake vLLM, installed by uv or pip.

Everything is offline. The packages' ``__init__`` ends the process, so that a test fails if anyone imports them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patcher import recordfile
from patcher.target import CONFIG, GENERATOR, PATHS, WORKER, Target, locate
from patcher.transaction import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping

BOMB = b"raise SystemExit('imported by the tool')\n"
BEFORE = {
    GENERATOR: b"# generator\nVALUE = 'old'\n",
    WORKER: b"# worker\nVALUE = 'old'\n",
    CONFIG: b"# config\nVALUE = 'old'\n",
}
# The same sizes as before, which is the hard case for bytecode.
AFTER = {name: data.replace(b"old", b"new") for name, data in BEFORE.items()}
CHANGES = {name: (BEFORE[name], AFTER[name]) for name in PATHS}
FACTS = Facts(tool="0.0.test", rules={"a-rule": "applies", "other-rule": "satisfied"})
PACKAGE = {"speculators/__init__.py": b"", "speculators/data_generation/__init__.py": b""}


@dataclass(frozen=True)
class Install:
    """One environment with a fake speculators in it."""

    root: Path
    python: Path
    site: Path

    @property
    def dist_info(self) -> Path:
        return next(self.site.glob("speculators-*.dist-info"))

    @property
    def record(self) -> Path:
        return self.dist_info / "RECORD"

    @property
    def files(self) -> dict[str, Path]:
        return {name: self.site / name for name in PATHS}

    def target(self, **options: bool) -> Target:
        return locate(self.python, os.environ, **options)


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    record: bool = True,
) -> Path:
    """Write a wheel with a correct RECORD."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    tag = "py3-none-any"
    contents = dict(files) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows = [f"{path},{recordfile.row_hash(data)},{len(data)}" for path, data in contents.items()]
    if record:
        contents[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in contents.items():
            archive.writestr(zipfile.ZipInfo(member, (2024, 1, 2, 3, 4, 6)), data)
    return path


def speculators_wheel(folder: Path, version: str = "0.3.0", files: Mapping[str, bytes] = BEFORE) -> Path:
    """Give a fake speculators with its files (or with ``files``)."""
    return wheel(folder, "speculators", version, {**PACKAGE, **files})


def vllm_wheel(folder: Path, name: str = "vllm", version: str = "0.16.0") -> Path:
    """Give a fake vLLM under any distribution name."""
    return wheel(folder, name, version, {"vllm/__init__.py": BOMB, "vllm/v1/__init__.py": b""})


def uv() -> str:
    """Find uv: the one beside this interpreter, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    assert found is not None, "the tests need uv: install the project's test extra"
    return found


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and give its output; a failure fails the test."""
    done = subprocess.run(
        [str(part) for part in command], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def environment(root: Path) -> Install:
    """Make an empty environment with the interpreter that runs the tests."""
    run(uv(), "venv", "--offline", "--python", sys.executable, root, VIRTUAL_ENV="")
    return _at(root)


def environment_with_pip(root: Path) -> Install:
    """Make an environment that has pip, from the interpreter's own bundle."""
    run(sys.executable, "-m", "venv", root)
    return _at(root)


def uv_install(install: Install, *wheels: Path, cache: Path, mode: str = "hardlink") -> None:
    """Install wheels with uv, in one of its link modes."""
    options = ["--offline", "--no-index", "--no-deps", "--reinstall", "--link-mode", mode]
    run(uv(), "pip", "install", *options, "--cache-dir", cache, "--python", install.python, *wheels)


def pip(install: Install, *arguments: str | Path) -> str:
    """Run the environment's own pip."""
    return run(install.python, "-m", "pip", "--disable-pip-version-check", *arguments).stdout


def standard(folder: Path, mode: str = "hardlink") -> Install:
    """Make an environment with both packages by uv, under ``folder``."""
    install = environment(folder / "env")
    wheels = folder / "wheels"
    uv_install(install, speculators_wheel(wheels), vllm_wheel(wheels), cache=folder / "cache", mode=mode)
    return install


def tree(*roots: Path) -> dict[str, tuple[object, ...]]:
    """Describe every file below ``roots``: kind, content, mode, mtime and number of links."""
    return {
        str(path): _describe(path)
        for root in roots
        for folder, _, names in os.walk(root)
        for path in (Path(folder, name) for name in names)
        if path.suffix != ".pyc"
    }


def _describe(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    link = path.is_symlink()
    content = os.readlink(path) if link else path.read_bytes()  # noqa: PTH115 - pathlib drops what a link spells
    return ("link" if link else "file", content, status.st_mode, status.st_mtime_ns, status.st_nlink)


def _at(root: Path) -> Install:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Install(root, root / "bin" / "python", root / "lib" / version / "site-packages")

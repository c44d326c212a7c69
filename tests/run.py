"""The set-up and the test command: makes .venv from the lock file, then runs the checks or the tool in it.

    python3 tests/run.py                 ruff, mypy, pytest with the real extractions
    python3 tests/run.py pytest -k rule  one command of the environment
    python3 tests/run.py demo            the demonstration

Standard library only: it runs before anything is installed. pip need not be part of the new environment, because
Debian's venv can't put it there without another package.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv"
BIN = FOLDER / "bin"
MARKER = FOLDER / "installed-from"
INPUTS = ("pyproject.toml", "requirements.lock")
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    # The real extractions, which start in one thread, beside all others: tests/conftest.py deals them out.
    ("pytest", "-n", "2"),
)


def main(arguments: list[str]) -> int:
    """Set up, then run what was asked for; the exit status of the first command that fails."""
    if sys.version_info < (3, 10):  # noqa: UP036  said here, since nothing has been installed that would say it
        print("speculators-patch needs Python 3.10 or later; this is", sys.version.split()[0], file=sys.stderr)
        return 4
    set_up()
    if arguments[:1] == ["demo"]:
        return run("speculators-patch", *arguments)
    if arguments:
        return run(*arguments)
    for check in CHECKS:
        status = run(*check)
        if status:
            return status
    return 0


def set_up() -> None:
    """Make the environment, unless the one that is there was made from these very files by this very Python."""
    parts = [sys.version, *(hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in INPUTS)]
    stamp = "\n".join(parts)
    if MARKER.is_file() and MARKER.read_text(encoding="utf-8") == stamp:
        return
    print("setting up", FOLDER, flush=True)
    venv.create(FOLDER, clear=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(BIN / "python"), "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "--no-deps", "-r", str(ROOT / "requirements.lock")], check=True, cwd=ROOT)
    subprocess.run([*pip, "--no-deps", "-e", str(ROOT)], check=True, cwd=ROOT)
    MARKER.write_text(stamp, encoding="utf-8")


def run(program: str, *arguments: str) -> int:
    """Run a program of the environment in the repository's folder."""
    print("$", program, *arguments, flush=True)
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    return subprocess.run([str(BIN / program), *arguments], cwd=ROOT, env={**os.environ, "PATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

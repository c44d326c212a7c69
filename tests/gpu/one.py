"""One verification, as a process of its own, so that many run side by side: its report goes to standard output."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from patcher.errors import PatchError
from patcher.verify import verify
from tests.gpu import overlay


class Job(msgspec.Struct, frozen=True):
    """What to verify: the arguments of ``patcher.verify.verify``."""

    interpreter: str
    family: str
    tp: int = 1
    sessions: tuple[str, ...] | None = None
    seconds: float = 500.0


class Failed(msgspec.Struct, frozen=True):
    """There is no report: why."""

    failed: str


def start(job: Job, folder: Path, *, runner: str = "default") -> subprocess.CompletedProcess[bytes]:
    """Run a job with the copy of speculators in ``folder``: what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.one", msgspec.json.encode(job).decode()],
        cwd=overlay.ROOT,
        env=overlay.environment(folder, runner=runner),
        capture_output=True,
        check=False,
    )


def main() -> int:
    """Read a Job from the command line, print a Report or a Failed."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    began = time.monotonic()
    try:
        report = verify(
            Path(job.interpreter),
            family=job.family,
            tp=job.tp,
            sessions=job.sessions,
            time_limit=job.seconds,
            progress=lambda line: print(f"{time.monotonic() - began:4.0f} s  {line}", file=sys.stderr, flush=True),
        )
    except PatchError as error:
        sys.stdout.buffer.write(msgspec.json.encode(Failed(str(error))))
        return error.exit_code
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0 if report.passed else 5


if __name__ == "__main__":
    sys.exit(main())

"""Run a command in a session of its own, stream its lines, and leave no process of it behind."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from patcher.signals import Deferred, unwinding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# A worker that is told to end closes its shared memory; one that does not listen is killed.
GRACE_SECONDS = 5.0
TAIL_LINES = 120


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: its exit status (negative: a signal), whether the limit ended it, its last lines."""

    status: int
    timed_out: bool
    tail: str


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    folder: Path,
    time_limit: float,
    line: Callable[[str], None],
) -> Ended:
    """Run a command to its end or to its time limit (seconds).

    Its whole process group is gone when this returns or raises, Ctrl-C, SIGTERM and SIGHUP included. If this process is
    killed, the command sees the end of its standard input, which is a pipe that nothing is written to.
    """
    with unwinding():
        child = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            return _follow(child, time_limit, line)
        finally:
            end_group(child)


def _follow(child: subprocess.Popen[str], time_limit: float, line: Callable[[str], None]) -> Ended:
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(child, lines), daemon=True)
    reader.start()
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    deadline = time.monotonic() + time_limit
    try:
        while not (ended := _has_ended(child)) and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                _pass_on(lines.get(timeout=0.2), tail, line)
    finally:
        end_group(child)
        # The reader ends when the last process that holds the pipe is gone.
        reader.join(timeout=GRACE_SECONDS)
        if child.stdout is not None and not reader.is_alive():
            child.stdout.close()
    while not lines.empty():
        _pass_on(lines.get_nowait(), tail, line)
    return Ended(child.wait(), not ended, "\n".join(tail))


def _read(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert child.stdout is not None  # noqa: S101 - it was made with a pipe
    with contextlib.suppress(ValueError):  # closed while reading
        for text in child.stdout:
            lines.put(text.rstrip("\n"))


def _pass_on(text: str, tail: collections.deque[str], line: Callable[[str], None]) -> None:
    tail.append(text)
    line(text)


def _has_ended(child: subprocess.Popen[str]) -> bool:
    """Whether the leader has ended, without reaping it: its group's number stays taken until the group is swept."""
    if child.returncode is not None:
        return True
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(child: subprocess.Popen[str]) -> None:
    """End the command and everything that it started. Does nothing the second time.

    Signals wait meanwhile: an impatient second Ctrl-C would leave the command running.
    """
    if child.returncode is not None:
        return
    with Deferred():
        if not _has_ended(child):
            _signal(child, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
            while not _has_ended(child) and time.monotonic() < deadline:
                time.sleep(0.05)
        _signal(child, signal.SIGKILL)
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _signal(child: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)

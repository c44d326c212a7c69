"""Stop apply and revert at every operation on the file system, and see what the next command makes of it.

    python -m tests.killpoints            # stop before every operation that Python announces, and in every write
    python -m tests.killpoints --strace   # kill at every system call that changes the file system (needs strace)

Prints the number of points and of failures; exit status 1 if any failed. The test suite runs the first form.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn
from unittest import mock

from patcher import journal, transaction
from patcher import record as records
from patcher.errors import FileError
from patcher.target import Target
from tests.installs import AFTER, BEFORE, CHANGES, FACTS, Install, standard, tree

Action = Literal["apply", "revert"]
Fault = Literal["kill", "error", "full", "SIGTERM", "SIGINT"]
ANNOUNCED = {
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.rmdir",
    "os.utime",
    "os.chmod",
    "os.chown",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# What strace stops at: every call by which a file system changes, or is made to keep what changed.
CALLS = "open,openat,write,fsync,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat"
CALLS += ",mkdir,mkdirat,rmdir,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,flock,close"


class Points:
    """Counts the operations of this process, and lets ``act`` happen before number ``at`` (from 1)."""

    def __init__(self, at: int, act: Callable[[str], None], *, lasting: bool = False) -> None:
        self.at, self.act, self.lasting = at, act, lasting
        self.seen = 0
        self.idle = False

    def arm(self) -> None:
        """Listen from now on; there is no way back, so only a forked child does this."""
        sys.addaudithook(self._hook)
        write = os.write

        def half_write(fd: int, data: Any) -> int:
            self._count("os.write")
            written = write(fd, bytes(data)[: (len(data) + 1) // 2])
            self._count("os.write, half")
            return written

        def counted_fsync(fd: int) -> None:
            self._count("os.fsync")

        os.write, os.fsync = half_write, counted_fsync  # type: ignore[assignment]

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ANNOUNCED or (event == "open" and isinstance(args[2], int) and args[2] & WRITING):
            self._count(event)

    def _count(self, event: str) -> None:
        if self.idle:
            return
        self.seen += 1
        if self.seen == self.at or (self.lasting and self.seen > self.at):
            self.idle = not self.lasting
            self.act(event)


@dataclass(frozen=True)
class Trial:
    """A tiny install in the state before one action, kept aside to start from again and again."""

    install: Install
    target: Target
    action: Action
    kept: Path
    old: dict[str, tuple[object, ...]]
    new: dict[str, tuple[object, ...]]

    def reset(self) -> None:
        """Bring the state from before the action back, links and times included."""
        shutil.rmtree(self.install.site)
        shutil.copytree(self.kept, self.install.site, symlinks=True)

    def act(self) -> None:
        """Run the action itself."""
        if self.action == "apply":
            transaction.apply(self.target, CHANGES, FACTS, {"SOURCE_DATE_EPOCH": "1700000000"})
        else:
            transaction.revert(self.target)

    def tree(self) -> dict[str, tuple[object, ...]]:
        """Describe every file of site-packages."""
        return tree(self.install.site)

    def torn(self) -> list[str]:
        """Name the target files that are neither whole-old nor whole-new."""
        whole = (BEFORE, AFTER)
        files = self.install.files.items()
        return [str(path) for name, path in files if path.read_bytes() not in [side[name] for side in whole]]


def prepare(folder: Path, action: Action, mode: str = "hardlink") -> Trial:
    """Make the install, and learn what the action makes of it when nothing goes wrong."""
    install = standard(folder, mode)
    trial = Trial(install, install.target(), action, folder / "kept", {}, {})
    if action == "revert":
        replace(trial, action="apply").act()
    shutil.copytree(install.site, trial.kept, symlinks=True)
    trial.reset()
    old = trial.tree()
    trial.act()
    new = trial.tree()
    assert old != new, "the action does nothing"
    return replace(trial, old=old, new=new)


def every_point(trial: Trial, fault: Fault, step: int = 1) -> Iterator[tuple[int, str | None]]:
    """Yield (point, what went wrong or None) until a run reaches its end undisturbed; ``step`` takes a sample."""
    with mock.patch("os.fsync"):  # a killed process, unlike a lost machine, loses no cache
        for point in itertools.count(1, step):
            trial.reset()
            status = _in_child(trial, fault, point)
            if status == 0:
                return
            yield point, _wrong(trial, fault, status)


def _in_child(trial: Trial, fault: Fault, point: int) -> int:
    """Run the action in a forked child with one fault; 0 says that the point lies beyond the end."""
    child = os.fork()
    if child == 0:
        _child(trial, fault, point)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


REACHED, REFUSED, INTERRUPTED, BROKEN = 71, 72, 73, 74


def _child(trial: Trial, fault: Fault, point: int) -> NoReturn:
    points = Points(point, _ACTS[fault], lasting=fault == "full")
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        points.arm()
        trial.act()
        code = REACHED if points.seen >= point else 0
    except FileError:
        code = REFUSED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - anything else is the failure that is looked for
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        code = BROKEN
    os._exit(code)


def _no_space(event: str) -> None:
    # A full disk lets files be renamed and removed, and nothing be made or written.
    if event in {"open", "os.write", "os.write, half", "os.link", "os.symlink", "os.mkdir", "os.fsync"}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fail(event: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), event)


_ACTS: dict[Fault, Callable[[str], None]] = {
    "kill": lambda event: os._exit(REACHED),
    "error": _fail,
    "full": _no_space,
    "SIGTERM": lambda event: os.kill(os.getpid(), signal.SIGTERM),
    "SIGINT": lambda event: os.kill(os.getpid(), signal.SIGINT),
}


def _wrong(trial: Trial, fault: Fault, status: int) -> str | None:
    """Say what is wrong after a fault, and after the healing that follows it."""
    if torn := trial.torn():
        return f"torn: {torn}"
    if status == BROKEN:
        return "an unexpected exception"
    at_once = fault in {"full", "SIGTERM", "SIGINT"} or (fault == "error" and status == REFUSED)
    if at_once and (left := _neither(trial)):
        return f"left by the process itself: {left}"
    if fault == "full" and trial.tree() != trial.old and status == REFUSED:
        return "refused, and yet changed"
    return _wrong_after_healing(trial)


def _wrong_after_healing(trial: Trial) -> str | None:
    transaction.heal(trial.target)
    if left := _neither(trial):
        return f"left after healing: {left}"
    if trial.action == "apply":
        record = records.load(trial.target)
        if (record is not None) != (trial.tree() == trial.new):
            return "the record does not go with the files"
    trial.act()  # and the work can be done now
    return None if trial.tree() == trial.new else "the action fails after healing"


def _neither(trial: Trial) -> list[str]:
    """List what differs from both whole states."""
    now = trial.tree()
    sides = [_differences(now, side) for side in (trial.old, trial.new)]
    return [] if [] in sides else min(sides, key=len)


def _differences(one: dict[str, tuple[object, ...]], other: dict[str, tuple[object, ...]]) -> list[str]:
    return [path for path in sorted({*one, *other}) if one.get(path) != other.get(path)]


def every_call(trial: Trial, folder: Path) -> Iterator[tuple[int, str | None]]:
    """The same, with strace killing a fresh process at each system call between lock and end."""
    log = folder / "strace"
    trial.reset()
    _strace(trial, log, [])
    for number, (call, count) in enumerate(_calls_from_lock(log.read_text()), 1):
        trial.reset()
        killed = _strace(trial, log, [f"--inject={call}:signal=KILL:when={count}"]) == -signal.SIGKILL
        torn = trial.torn()
        yield number, f"{call=} {count=} {torn=} {killed=}" if torn or not killed else _wrong_after_healing(trial)


def _calls_from_lock(log: str) -> list[tuple[str, int]]:
    """Read (name, how many of that name so far, which is what strace counts) from the lock file's opening on."""
    counts: Counter[str] = Counter()
    calls = []
    for line in log.splitlines():
        if match := re.match(r"\d+ +(\w+)\(", line):
            counts[match[1]] += 1
            calls.append((match[1], counts[match[1]], journal.LOCK in line))
    locks = [number for number, (_, _, lock) in enumerate(calls) if lock]
    return [(name, count) for name, count, _ in calls[locks[0] : locks[-1] + 2]]  # the last: unlink, close


def _strace(trial: Trial, log: Path, inject: list[str]) -> int:
    # The target is handed over: asking the interpreter for it is a second process, with counts of its own.
    kept = log.with_name("target")
    kept.write_bytes(pickle.dumps((trial.install, trial.target, trial.action)))
    code = f"from tests.killpoints import one; one({str(kept)!r})"
    command = ["strace", "-f", "-o", str(log), f"--trace={CALLS}", *inject, sys.executable, "-B", "-c", code]
    return subprocess.run(command, cwd=Path(__file__).parents[1], check=False, capture_output=True).returncode


def one(kept: str) -> None:
    """Run one action on an environment; what strace starts."""
    install, target, action = pickle.loads(Path(kept).read_bytes())  # noqa: S301 - written by the function above
    Trial(install, target, action, Path(kept), {}, {}).act()


def counts(*, use_strace: bool) -> Iterator[tuple[str, int]]:
    """All points of both actions: a line for each kind of fault, and how many points failed."""
    actions: tuple[Action, ...] = ("apply", "revert")
    faults: tuple[Fault, ...] = ("kill", "error", "full", "SIGTERM", "SIGINT")
    for action in actions:
        for fault in (None,) if use_strace else faults:
            with tempfile.TemporaryDirectory() as folder:
                trial = prepare(Path(folder), action)
                results = list(every_point(trial, fault) if fault else every_call(trial, Path(folder)))
            wrong = [(point, text) for point, text in results if text]
            line = f"{action:<7} {fault or 'strace':<8} {len(results):>4} points, {len(wrong)} failures"
            yield "\n  ".join([line, *(f"{point}: {text}" for point, text in wrong[:2])]), len(wrong)


def main() -> int:
    """Run all points and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strace", action="store_true")
    failed = 0
    for line, failures in counts(use_strace=parser.parse_args().strace):
        print(line, flush=True)
        failed += failures
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

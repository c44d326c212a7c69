"""Killed, interrupted, out of space, tampered with. Numbers are those of the fault list."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args
from unittest import mock

import msgspec
import pytest

from patcher import atomic, disk, journal, lock, record, sealed, transaction
from patcher.errors import DriftError, FileError
from patcher.journal import Entry, Journal
from patcher.target import GENERATOR, PATHS, WORKER
from patcher.transaction import Healed
from tests.installs import AFTER, BEFORE, CHANGES, FACTS, Install, speculators_wheel, standard, tree, uv_install
from tests.killpoints import Action, Fault, every_point, prepare


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return standard(tmp_path)


def apply(install: Install) -> transaction.Result:
    return transaction.apply(install.target(), CHANGES, FACTS, {})


def contents(install: Install) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in install.files.items()}


class Killed(BaseException):
    """Stands for the end of the process: nothing that follows it in the work may run."""


def killed(install: Install, function: str, call: int) -> None:
    """Apply until the ``call``-th call of a function in atomic.py, and leave everything as a kill does."""
    real, calls = getattr(atomic, function), [0]

    def counted(*args: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return real(*args, **named)

    with (
        mock.patch.object(atomic, function, counted),
        mock.patch.object(atomic, "_take_back"),
        pytest.raises(Killed),
    ):
        apply(install)


@pytest.mark.parametrize("action", get_args(Action))
@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_fault_03_killed_at_every_operation(tmp_path: Path, action: Action, mode: str) -> None:
    step = 1 if mode == "hardlink" else 7  # python -m tests.killpoints takes every point of every fault
    results = list(every_point(prepare(tmp_path, action, mode), "kill", step))
    assert len(results) > 100 // step
    assert [result for result in results if result[1]] == []


@pytest.mark.parametrize("action", get_args(Action))
@pytest.mark.parametrize("fault", ["error", "full", "SIGTERM", "SIGINT"])
def test_faults_05_and_28_refused_or_interrupted_at_every_operation(
    tmp_path: Path, action: Action, fault: Fault
) -> None:
    results = list(every_point(prepare(tmp_path, action), fault, step=7))
    assert len(results) > 100 // 7
    assert [result for result in results if result[1]] == []


@pytest.mark.parametrize("action", get_args(Action))
def test_fault_03_killed_after_the_first_file_is_completed(install: Install, action: Action) -> None:
    old, new = (BEFORE, AFTER) if action == "apply" else (AFTER, BEFORE)
    if action == "revert":
        apply(install)
    kill_at_target(install, 2, action)
    assert contents(install) == {**old, GENERATOR: new[GENERATOR]}
    assert transaction.heal(install.target()) == Healed(action, "completed")
    assert contents(install) == new
    assert transaction.heal(install.target()) is None


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_fault_03_any_command_heals_first_and_says_so(install: Install, command: str) -> None:
    before = tree(install.site)
    kill_at_target(install, 2)
    result = apply(install) if command == "apply" else transaction.revert(install.target())
    assert result.healed == Healed("apply", "completed")
    assert result.outcome == ("already" if command == "apply" else "reverted")
    if command == "revert":
        assert [fact[:4] for fact in tree(install.site).values()] == [fact[:4] for fact in before.values()]


def test_fault_04_killed_while_staging_is_rolled_back(install: Install) -> None:
    before = tree(install.site)
    killed(install, "_sync", 1)
    assert contents(install) == BEFORE
    assert list(install.site.rglob(".*speculators-patch-new"))
    assert transaction.heal(install.target()) == Healed("apply", "rolled back")
    assert tree(install.site) == before


def test_fault_04_a_draft_of_the_journal_is_removed(install: Install) -> None:
    before = tree(install.site)
    (install.site / f"{journal.PREFIX}{journal.DRAFT}").write_text('{"half')
    assert transaction.heal(install.target()) is None
    assert tree(install.site) == before


def test_fault_05_a_full_disk_is_named(install: Install) -> None:
    before = tree(install.site)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.write", side_effect=full), pytest.raises(FileError, match="everything is as it was") as caught:
        apply(install)
    assert caught.value.found == "No space left on device"
    assert tree(install.site) == before
    assert apply(install).outcome == "applied"


def test_fault_05_where_hard_links_are_refused_copies_do(install: Install) -> None:
    before = tree(install.site)
    refused = OSError(errno.EPERM, "no hard links")
    with mock.patch("os.link", side_effect=refused):
        with mock.patch.object(atomic, "_forward", side_effect=OSError(errno.EIO, "io")), pytest.raises(FileError):
            apply(install)
        assert tree(install.site) == before
        assert apply(install).outcome == "applied"
    assert contents(install) == AFTER


def test_taking_back_that_fails_too_is_finished_by_the_next_command(install: Install) -> None:
    before = tree(install.site)
    broken = OSError(errno.EIO, "io")
    with (
        mock.patch.object(atomic, "_forward", side_effect=broken),
        mock.patch.object(atomic, "_back", side_effect=broken),
        pytest.raises(FileError, match="taking it back failed too"),
    ):
        apply(install)
    assert transaction.heal(install.target()) == Healed("apply", "rolled back")
    assert tree(install.site) == before


def test_fault_03_reinstalled_before_healing_stays_as_reinstalled(install: Install, tmp_path: Path) -> None:
    kill_at_target(install, 2)
    other = {name: data + b"# 0.4.0\n" for name, data in BEFORE.items()}
    uv_install(install, speculators_wheel(tmp_path, "0.4.0", other), cache=tmp_path / "cache")
    assert transaction.heal(install.target()) == Healed("apply", "rolled back")
    assert contents(install) == other
    assert [path.name for path in install.site.glob("speculators*")] == ["speculators", "speculators-0.4.0.dist-info"]
    assert not list(install.site.rglob("*speculators-patch*"))


def test_fault_28_terminated_in_a_real_process(install: Install) -> None:
    before = tree(install.site)
    done = in_process(install, "os.kill(os.getpid(), signal.SIGTERM)")
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert tree(install.site) == before
    assert in_process(install, "pass").returncode == 0
    assert contents(install) == AFTER


def test_fault_28_an_ignored_signal_stays_ignored(install: Install) -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with mock.patch.object(disk, "keep", side_effect=lambda *_: os.kill(os.getpid(), signal.SIGHUP)):
            assert apply(install).outcome == "applied"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)


def test_fault_28_a_handler_that_returns_sees_the_signal_once_and_the_work_is_taken_back(install: Install) -> None:
    before, seen = tree(install.site), []
    old = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with (
            mock.patch.object(disk, "keep", side_effect=lambda *_: os.kill(os.getpid(), signal.SIGTERM)),
            pytest.raises(FileError, match="stopped by a signal"),
        ):
            apply(install)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert seen == [signal.SIGTERM]
    assert tree(install.site) == before


def test_fault_28_terminated_while_waiting_for_the_lock(install: Install) -> None:
    with lock.exclusive(install.site / journal.LOCK, mock.Mock()):
        before = tree(install.site)
        with subprocess.Popen([sys.executable, "-c", script(install, "pass")], stdout=subprocess.PIPE) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"ready\n"
            time.sleep(0.3)
            waiting.terminate()
        assert waiting.returncode == -signal.SIGTERM
        assert tree(install.site) == before
    assert not list(install.site.glob(".*"))


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"schema": 1', b'"schema": 2'),
        (b'"a-rule"', b'"b-rule"'),
        (b'"before": "', b'"before": "0'),
        (b"{", b'{"extra": 1,'),
        (b"{", b""),
        (GENERATOR.encode(), b"../../evil.py"),
    ],
)
def test_fault_30_changed_record(install: Install, old: bytes, new: bytes) -> None:
    apply(install)
    path = record.home(install.target()) / record.RECORD_JSON
    assert record.load(install.target()) is not None
    change(path, old, new)
    refused_everywhere(install)


def test_fault_30_record_sealed_anew_is_not_the_one_in_record(install: Install) -> None:
    apply(install)
    path = record.home(install.target()) / record.RECORD_JSON
    loaded = record.load(install.target())
    assert loaded is not None
    path.write_bytes(record.encode(msgspec.structs.replace(loaded, tool="other")))
    refused_everywhere(install)


def test_fault_30_record_with_a_foreign_path(install: Install) -> None:
    install.record.unlink()  # so that only the names are left to refuse it by
    apply(install)
    path = record.home(install.target()) / record.RECORD_JSON
    loaded = record.load(install.target())
    assert loaded is not None
    foreign = msgspec.structs.replace(loaded.files[0], path="../../evil.py")
    path.write_bytes(record.encode(msgspec.structs.replace(loaded, files=(foreign,))))
    refused_everywhere(install)


@pytest.mark.parametrize("name", ["custom_worker.py.original", "RECORD.original"])
@pytest.mark.parametrize("how", ["changed", "gone", "link"])
def test_fault_30_changed_original(install: Install, tmp_path: Path, name: str, how: str) -> None:
    apply(install)
    path = record.home(install.target()) / name
    data = path.read_bytes()
    path.unlink()
    if how == "changed":
        path.write_bytes(data + b"evil = 1\n")
    elif how == "link":
        (tmp_path / "same").write_bytes(data)
        path.symlink_to(tmp_path / "same")
    before = tree(install.site)
    with pytest.raises(FileError):
        transaction.revert(install.target())
    assert tree(install.site) == before


def test_fault_30_changed_link(tmp_path: Path) -> None:
    install = standard(tmp_path, "symlink")
    apply(install)
    (record.home(install.target()) / "custom_worker.py.link").write_bytes(b"/etc/passwd")
    before = tree(install.site)
    with pytest.raises(FileError):
        transaction.revert(install.target())
    assert tree(install.site) == before


def test_fault_30_record_folder_that_is_a_link(install: Install, tmp_path: Path) -> None:
    apply(install)
    folder = record.home(install.target())
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    refused_everywhere(install)


@pytest.mark.parametrize("phase", journal.PHASES)
@pytest.mark.parametrize("name", ["../../evil.py", "record/../../evil.py", "record/evil", "/etc/evil", "RECORD\0"])
def test_fault_30_journal_with_a_foreign_path(install: Install, phase: journal.Phase, name: str) -> None:
    write_journal(install, phase, Journal(1, "apply", install.dist_info.name, (Entry(name, None, "file:0"),)))
    heal_is_refused(install)


@pytest.mark.parametrize(
    "dist_info", ["../speculators-1.dist-info", "vllm-0.16.0.dist-info", "speculators-/../x.dist-info"]
)
def test_fault_30_journal_of_a_foreign_folder(install: Install, dist_info: str) -> None:
    write_journal(install, "write", Journal(1, "apply", dist_info, ()))
    heal_is_refused(install)


def test_fault_30_journal_that_was_changed(install: Install) -> None:
    kill_at_target(install, 2)
    change(install.site / f"{journal.PREFIX}write", b'"apply"', b'"revert"')
    heal_is_refused(install)


@pytest.mark.parametrize("phase", ["write", "undo"])
def test_fault_30_staged_or_kept_file_that_was_changed(install: Install, phase: journal.Phase) -> None:
    kill_at_target(install, 2)
    worker, generator = install.files[WORKER], install.files[GENERATOR]
    path = worker.with_name(f".{worker.name}.speculators-patch-new")
    if phase == "undo":
        (install.site / f"{journal.PREFIX}write").rename(install.site / f"{journal.PREFIX}undo")
        path = generator.with_name(f".{generator.name}.speculators-patch-old")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(b"evil = 1\n")
    heal_is_refused(install)
    path.write_bytes(data)
    assert transaction.heal(install.target()) == Healed("apply", "completed" if phase == "write" else "rolled back")


def test_a_file_that_is_gone(install: Install) -> None:
    apply(install)
    install.files[WORKER].unlink()
    with pytest.raises(DriftError, match="gone"):
        transaction.revert(install.target())
    assert install.files[GENERATOR].read_bytes() == AFTER[GENERATOR]


def refused_everywhere(install: Install) -> None:
    before = tree(install.site)
    again = {name: (AFTER[name], AFTER[name] + b"#\n") for name in PATHS}
    with pytest.raises(FileError):
        record.load(install.target())
    with pytest.raises(FileError):
        transaction.apply(install.target(), again, FACTS)
    with pytest.raises(FileError):
        transaction.revert(install.target())
    assert tree(install.site) == before


def heal_is_refused(install: Install) -> None:
    before = tree(install.root.parent)
    with pytest.raises(FileError):
        transaction.heal(install.target())
    assert tree(install.root.parent) == before


def write_journal(install: Install, phase: journal.Phase, content: Journal) -> None:
    (install.site / f"{journal.PREFIX}{phase}").write_bytes(sealed.seal(content))


def kill_at_target(install: Install, number: int, action: Action = "apply") -> None:
    """Die before the ``number``-th of the files is renamed into place."""
    names = {path.name for path in install.files.values()}
    real, calls = disk.put, [0]

    def put(staged: Path, path: Path) -> None:
        calls[0] += path.name in names
        if calls[0] == number:
            raise Killed
        real(staged, path)

    with mock.patch.object(disk, "put", put), mock.patch.object(atomic, "_take_back"), pytest.raises(Killed):
        apply(install) if action == "apply" else transaction.revert(install.target())


def in_process(install: Install, code: str) -> subprocess.CompletedProcess[str]:
    """Apply in a process of its own, with ``code`` run at the first file that is staged."""
    return subprocess.run([sys.executable, "-c", script(install, code)], capture_output=True, text=True, check=False)


def script(install: Install, code: str) -> str:
    return (
        "import os, signal; from pathlib import Path; from patcher import disk, transaction\n"
        "from patcher.target import locate; from tests.installs import CHANGES, FACTS\n"
        f"target = locate(Path({str(install.python)!r}), os.environ); real = disk.keep\n"
        f"def keep(path, old):\n    {code}\n    real(path, old)\n"
        "disk.keep = keep; print('ready', flush=True); transaction.apply(target, CHANGES, FACTS)\n"
    )

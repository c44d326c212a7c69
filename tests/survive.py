"""What the program survives, shown: faults and their tests, kill points, load, damaged input.

    python -m tests.survive           all of it (half an hour; strace is used where it is installed)
    python -m tests.survive --quick   samples

A test named ``test_fault_07_...`` is of fault 7; those that prove more than one thing are listed here.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import fuzz, killpoints, load

TESTS = Path(__file__).resolve().parent
FAULTS = {
    1: "a file is hard linked to an installer's cache or another environment",
    2: "a file is a symbolic link",
    3: "killed between two files",
    4: "killed while a temporary file is written",
    5: "the disk is full",
    6: "site-packages cannot be written",
    7: "many commands at once; a dead process's lock",
    8: "apply twice",
    9: "edited by hand after apply",
    10: "speculators installed again after apply",
    11: "a release that has the fix itself",
    12: "a release without the files",
    13: "vLLM under another name or version, or an editable checkout",
    14: "no vLLM or no speculators",
    15: "a call that a rule expects is renamed",
    16: "a pattern is found twice where once is expected",
    17: "a file that does not parse or does not come back from LibCST",
    18: "CRLF, BOM, another encoding, tabs, no final newline",
    19: "stale bytecode",
    20: "SOURCE_DATE_EPOCH",
    21: "an editable install, or one from version control",
    22: "two speculators on the path",
    23: "a zipped package; no RECORD",
    24: "a call that does not bind after planning",
    25: "run without a target by uv tool or pipx",
    26: "patched by hand before",
    27: "RECORD, pip check and uninstalling",
    28: "signals, a closed pipe, odd paths, umask, owner",
    29: "a malicious rule",
    30: "a tampered record or journal",
}
MORE = {
    9: ["test_cli.py::test_hand_edited_file_needs_to_be_allowed"],
    11: ["test_golden.py::test_what_upstream_mended_itself_is_satisfied"],
    15: ["test_cli.py::test_drift_names_rule_expectation_and_nearest_line"],
    16: ["test_plan.py::test_two_where_one_is_expected_names_both"],
    17: [
        "test_plan.py::test_a_file_that_does_not_parse_is_every_rules_drift",
        "test_rewrite.py::test_a_file_that_can_not_be_read_is_drifted",
        "test_rewrite.py::test_a_file_that_libcst_does_not_give_back_is_drifted",
    ],
    18: [
        "test_real_rules.py::test_the_bytes_of_the_file_do_not_matter",
        "test_rewrite.py::test_every_byte_outside_the_edit_stays",
        "test_diff.py::test_git_and_patch_take_it_forward_and_in_reverse",
    ],
    24: ["test_cli.py::test_a_break_that_no_rule_knows_stops_the_apply"],
    28: ["test_cli.py::test_output_that_nobody_reads_is_no_failure"],
    29: [
        "test_rule.py::test_a_bad_rule_is_told_off_by_its_key",
        "test_rule.py::test_a_giant_a_folder_and_a_pipe_are_no_rules",
        "test_pattern.py::test_a_pattern_cannot_blow_up",
        "test_cli.py::test_rule_with_an_unknown_key_is_usage",
    ],
}


def tests_of_faults() -> dict[int, list[str]]:
    """Fault -> the tests that show how it is survived, as pytest names them below tests/."""
    found: dict[int, list[str]] = {number: list(MORE.get(number, [])) for number in FAULTS}
    for path in sorted(TESTS.glob("test_*.py")):
        for name in re.findall(r"^def (test_faults?_\d\d_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            for number in re.findall(r"(?<=_)\d\d(?=_)", name):
                found[int(number)].append(f"{path.name}::{name}")
    return found


@dataclass
class Results:
    """A pytest plugin: how many cases of each test passed and did not."""

    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case by its test's name."""
        name = report.nodeid.partition("[")[0].rpartition("/")[2]  # a case's own name may hold slashes
        if report.when == "call" and report.passed:
            self.passed[name] = self.passed.get(name, 0) + 1
        elif not report.passed:  # skipped too: what did not run is not shown
            self.failed[name] = self.failed.get(name, 0) + 1


def fault_table() -> tuple[list[str], int]:
    """One line a fault and test, with the cases that passed; how many tests did not pass whole."""
    tests = tests_of_faults()
    results = Results()
    wanted = sorted({name for names in tests.values() for name in names})
    options = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider"]
    pytest.main([*options, *(str(TESTS / name) for name in wanted)], plugins=[results])
    lines = []
    bad = 0
    for number, names in tests.items():
        for name in names:
            passed, failed = results.passed.get(name, 0), results.failed.get(name, 0)
            bad += failed > 0 or not passed
            verdict = f"{passed} passed" if passed and not failed else f"{passed} passed, {failed} NOT"
            lines.append(f"{number:>2}  {FAULTS[number]}: {name}: {verdict}")
    return lines, bad


def kill_lines(*, quick: bool) -> Iterator[tuple[str, int]]:
    """Kill points, by Python's own announcements and by system calls; the number of failures of each."""
    ways = [False] if quick or shutil.which("strace") is None else [False, True]
    for use_strace in ways:
        yield from killpoints.counts(use_strace=use_strace)
    if len(ways) == 1:
        yield "strace: not run" + ("" if quick else ", it is not installed"), 0


def main() -> int:
    """Run everything, print it; exit status 1 if anything was not survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="samples")
    quick = parser.parse_args().quick
    lines, bad = fault_table()
    print("", *lines, "", sep="\n", flush=True)
    for line, failures in kill_lines(quick=quick):
        print(line, flush=True)
        bad += failures
    with tempfile.TemporaryDirectory() as folder:
        for found in load.both(Path(folder) / "env", 16 if quick else 64):
            print(found, flush=True)
            bad += not found.good
        for damage in fuzz.counts(Path(folder), 50 if quick else 1):
            print(damage, flush=True)
            bad += len(damage.wrong)
    print("survived" if not bad else f"{bad} not survived")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

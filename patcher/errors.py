"""One exception a failure class, each with the exit code that the command ends with.

A message answers, where it can: what went wrong, where, by which rule, what was expected, what was found, what next.
"""

from __future__ import annotations

from typing import ClassVar

# What the user does next where the installed files, or what was kept of them, are no longer to be trusted.
REINSTALL = "reinstall speculators (pip install --force-reinstall --no-deps)"
OR_MEND = f"{REINSTALL}, or mend the file"


class PatchError(Exception):
    """A failure that the user is told about, without a traceback.

    Args:
        what: one sentence, no final full stop needed.
        where: a path or ``file:line``.
        rule: the id of the rule concerned.
        expected: what should have been there.
        found: what is there.
        hint: what the user does next.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        rule: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.rule = rule
        self.expected = expected
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        details = (
            ("where", self.where),
            ("rule", self.rule),
            ("expected", self.expected),
            ("found", self.found),
            ("next", self.hint),
        )
        return "\n".join([self.what, *(_detail(label, text) for label, text in details if text)])


def _detail(label: str, text: str) -> str:
    head, *rest = text.splitlines()
    return "\n".join([f"  {label + ':':<10}{head}", *(f"  {'':<10}{line}" for line in rest)])


class RuleError(PatchError):
    """A rule file, a rule's name or a reviewed diff that does not load."""

    exit_code = 2


class DriftError(PatchError):
    """The file is not what the rules know; nothing was written."""

    exit_code = 3


class TargetError(PatchError):
    """The target is missing, ambiguous or unsupported."""

    exit_code = 4


class ProofError(PatchError):
    """Conformance or verification failed; nothing is left written."""

    exit_code = 5


class FileError(PatchError):
    """Permission, read-only file system, full disk, lock, a record that was tampered with."""

    exit_code = 6

"""What conformance found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """An import that doesn't resolve, or a call that doesn't bind.

    Args:
        file: as in the files under test.
        line: counted from 1.
        code: the import or the call, shortened.
        symbol: the dotted name that it is about.
        problem: a sentence.
        installed: the name and parameters as installed, or None where there is none.
        defined_at: file and line of the definition, or of the module or class that lacks the name.
    """

    file: str
    line: int
    code: str
    symbol: str
    problem: str
    installed: str | None = None
    defined_at: str | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.code}: {self.problem}"
        if self.installed:
            text += f"\n  installed: {self.installed}"
        if self.defined_at:
            text += f"\n  {'defined at' if self.installed else 'looked in'} {self.defined_at}"
        return text

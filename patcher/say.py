"""Print. A reader that has gone away changes neither the work nor the exit code."""

from __future__ import annotations

import os
import sys

import click

from patcher.errors import FileError


def say(text: str | bytes, *, err: bool = False, end: bool = True) -> None:
    """Print a text, or bytes as they are, and a newline if ``end``; to standard error if ``err``.

    Raises:
        FileError: standard output takes nothing (a full disk). What standard error does not take is not missed.
    """
    stream = sys.stderr if err else sys.stdout
    if isinstance(text, str):
        text = _printable(text, getattr(stream, "encoding", None) or "utf-8")
    try:
        click.echo(text, err=err, nl=end)
    except OSError as error:
        # What is printed from now on goes nowhere, and Python does not complain at exit.
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())
        if not err and not isinstance(error, BrokenPipeError):
            raise FileError("standard output can't be written", found=str(error)) from error


def _printable(text: str, encoding: str) -> str:
    """Spell what an encoding does not have, such as the bytes of a path that are no text, by their numbers."""
    return text.encode(encoding, "backslashreplace").decode(encoding)

"""Print. A reader that has gone away changes neither the work nor the exit code."""

from __future__ import annotations

import os
import sys

import click


def say(text: str | bytes, *, err: bool = False, end: bool = True) -> None:
    """Print a text, or bytes as they are, and a newline if ``end``; to standard error if ``err``."""
    try:
        click.echo(text, err=err, nl=end)
    except BrokenPipeError:
        # What is printed from now on goes nowhere, and Python does not complain at exit.
        stream = sys.stderr if err else sys.stdout
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())

"""A wheel's RECORD as bytes: look rows up, set rows, take them back. Untouched lines keep every byte.

Format: "Recording installed projects" in the Python packaging specifications; CSV rows of path, hash, size.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def row_hash(data: bytes) -> str:
    """Spell a hash as RECORD does: ``sha256=`` and URL-safe base64 without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def hashes(record: bytes) -> dict[str, str]:
    """Read path -> hash; rows without a hash (RECORD itself, bytecode) are left out."""
    rows = (_row(line) for line in record.splitlines())
    return {row[0]: row[1] for row in rows if len(row) >= 2 and row[1]}


def with_rows(record: bytes, files: Mapping[str, bytes], *, add: Collection[str]) -> bytes:
    """Set the rows of ``files`` (path -> new bytes); a path without a row gets one only where ``add`` names it."""
    lines = record.splitlines(keepends=True)
    present = {_path(line) for line in lines}
    changed = [_line(path, files[path], _ending(line)) if (path := _path(line)) in files else line for line in lines]
    new = sorted(path for path in add if path not in present)
    if new and changed and not _ending(changed[-1]):
        changed[-1] += _newline(lines)
    return b"".join([*changed, *(_line(path, files[path], _newline(lines)) for path in new)])


def without_rows(record: bytes, original: bytes, paths: Collection[str]) -> bytes:
    """Give the rows of ``paths`` the form they have in ``original``, and drop those that it does not have."""
    before = {_path(line): line for line in original.splitlines(keepends=True)}
    lines = record.splitlines(keepends=True)
    return b"".join(before.get(path, b"") if (path := _path(line)) in paths else line for line in lines)


def _row(line: bytes) -> list[str]:
    return next(csv.reader([line.decode("utf-8", "surrogateescape")]), [])


def _path(line: bytes) -> str:
    row = _row(line)
    return row[0] if row else ""


def _line(path: str, data: bytes, ending: bytes) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([path, row_hash(data), len(data)])
    return text.getvalue().encode("utf-8", "surrogateescape") + ending


def _ending(line: bytes) -> bytes:
    return line[len(line.rstrip(b"\r\n")) :]


def _newline(lines: list[bytes]) -> bytes:
    return (_ending(lines[0]) if lines else b"") or b"\n"

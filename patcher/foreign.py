"""Show what someone else changed in a file."""

from __future__ import annotations

import difflib

# A reader needs the first hunks; a file that was replaced as a whole would fill the screen.
LINES = 60


def hunk(expected: bytes, found: bytes, name: str) -> str:
    """Give the difference as a unified diff, cut after LINES lines; bytes that are not UTF-8 show as escapes."""
    old, new = (data.decode("utf-8", "backslashreplace").splitlines() for data in (expected, found))
    lines = list(difflib.unified_diff(old, new, f"expected/{name}", f"found/{name}", n=1, lineterm=""))
    if not lines:
        return "only line endings differ"
    if len(lines) > LINES:
        lines[LINES:] = [f"... {len(lines) - LINES} lines more"]
    return "\n".join(lines)

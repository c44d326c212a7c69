"""What was applied: hashes, rules and originals. Lives with the install and leaves with it.

The record's folder is ``<dist-info>/speculators-patch``, or ``speculators/.speculators-patch`` where no
dist-info exists. It holds record.json, and for each patched file the original and the patched bytes
(and what a symbolic link said). RECORD lists them, so that uninstalling takes them along.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from patcher import recordfile, sealed
from patcher.disk import FileState, look, sha256
from patcher.errors import REINSTALL, FileError
from patcher.target import NEEDED, PATHS, Target

RECORD_JSON = "record.json"
INDEX = "RECORD"  # the wheel's own list of files, which is patched and restored like the others
BASENAMES = {path: path.rpartition("/")[2] for path in PATHS} | {INDEX: INDEX}
NAMES = frozenset(
    {RECORD_JSON} | {f"{base}.{kind}" for base in BASENAMES.values() for kind in ("original", "link", "patched")}
)

State = Literal["pristine", "patched", "modified", "unproven", "missing"]


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a file was before apply. Hashes are SHA-256 in hexadecimal, of the bytes and of a link's text."""

    before: str
    mode: int
    link: str | None


class PatchedFile(Kept, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of the files: its name (target.PATHS) and the hash that apply left."""

    path: str
    after: str


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One apply. ``rules`` maps each rule to its outcome; ``applied`` is UTC in ISO 8601."""

    schema: Literal[1] = 1
    tool: str
    applied: str
    python: str
    speculators: str | None
    vllm: str | None
    rules: dict[str, str]
    files: tuple[PatchedFile, ...]
    index: Kept | None

    def of(self, path: str) -> PatchedFile | None:
        """Give the entry of one of the files."""
        return next((file for file in self.files if file.path == path), None)


def home(target: Target) -> Path:
    """Give the folder of the record; it need not exist."""
    dist_info = target.speculators.dist_info
    return dist_info / "speculators-patch" if dist_info else target.speculators.root / ".speculators-patch"


def row(target: Target, name: str) -> str:
    """Spell a file of the record's folder as a path in RECORD."""
    folder = home(target)
    return folder.joinpath(name).relative_to(folder.parent.parent).as_posix()


def encode(record: Record) -> bytes:
    """Give the bytes of record.json."""
    return sealed.seal(record)


def load(target: Target) -> Record | None:
    """Read the record; None where nothing is applied.

    Raises:
        FileError: tampered with: another schema, another hash than its seal or RECORD say, a foreign path; or
            RECORD lists it, and it is gone.
    """
    path = home(target) / RECORD_JSON
    if path.parent.is_symlink():
        raise FileError("the record's folder is a link; nothing of it is used", where=str(path.parent))
    data = sealed.read(path)
    listed = _index_hashes(target).get(row(target, RECORD_JSON))
    if data is None and listed is not None:
        raise FileError("the record of what was applied is gone", where=str(path), hint=REINSTALL)
    if data is None:
        return None
    record = sealed.unseal(data, Record, path)
    names = [file.path for file in record.files]
    if len(set(names)) != len(names) or not set(names) <= set(PATHS):
        raise FileError("the record names files that this tool never patches", where=str(path), found=", ".join(names))
    if listed is not None and listed != recordfile.row_hash(data):
        raise FileError("the record is not the one that RECORD lists", where=str(path), expected=listed)
    return record


def original(target: Target, name: str, kept: Kept) -> FileState:
    """Give what revert puts back for ``name`` (one of PATHS, or INDEX), verified against the record.

    A symbolic link is restored as a link where what it leads to still has the original bytes; where it
    doesn't (a cleaned cache), the original bytes come back as a file.

    Raises:
        FileError: what was kept is gone or was changed.
    """
    stem = home(target) / BASENAMES[name]
    data_path, link_path = stem.with_name(stem.name + ".original"), stem.with_name(stem.name + ".link")
    data = _verified(data_path, kept.before)
    state = look(data_path)
    assert state is not None  # noqa: S101 - it was read a line above
    link = None
    if kept.link is not None:
        link = _verified(link_path, kept.link)
        leads_to = place(target, name).parent / Path(link.decode("utf-8", "surrogateescape"))
        if not leads_to.is_file() or sha256(leads_to.read_bytes()) != kept.before:
            link = None
    return FileState(data, link, kept.mode & 0o7777, state.uid, state.gid, state.mtime_ns)


def patched_bytes(target: Target, file: PatchedFile) -> bytes:
    """Give the bytes that apply wrote, verified; to show what was edited since."""
    return _verified(home(target) / f"{BASENAMES[file.path]}.patched", file.after)


def index(target: Target) -> FileState | None:
    """Read the wheel's RECORD as it is now; None where there is none."""
    return look(target.speculators.record) if target.speculators.record else None


def place(target: Target, name: str) -> Path:
    """Give the path of one of PATHS, or of RECORD."""
    return target.path(name) if name in PATHS else _index_path(target)


def state(target: Target, record: Record | None) -> dict[str, State]:
    """Tell each file's state as far as hashes tell it; ``partial`` and ``drifted`` take a plan."""
    return {name: _state(target, record, name, path) for name, path in target.files.items()}


def pristine(target: Target) -> dict[str, bool | None]:
    """Compare each file with the wheel's own RECORD row, from before apply; None: no row, so unproven."""
    rows = _original_hashes(target, load(target))
    return {name: _equals(path, rows.get(name)) for name, path in target.files.items()}


def lost(target: Target) -> tuple[str, ...]:
    """The needed files that RECORD lists, or whose companion is there, and that are gone themselves."""
    rows, gone = _index_hashes(target), target.missing
    return tuple(name for name in gone if name in rows or len(gone) < len(NEEDED))


def _state(target: Target, record: Record | None, name: str, path: Path) -> State:
    found = look(path)
    if found is None:
        return "missing"
    file = record.of(name) if record else None
    if file is not None and sha256(found.data) == file.after != file.before:
        return "patched"
    expected = _original_hashes(target, record).get(name)
    if expected is None:
        return "unproven"
    return "pristine" if recordfile.row_hash(found.data) == expected else "modified"


def _equals(path: Path, expected: str | None) -> bool | None:
    found = look(path)
    if expected is None or found is None:
        return None
    return recordfile.row_hash(found.data) == expected


def _original_hashes(target: Target, record: Record | None) -> dict[str, str]:
    """Read the wheel's rows: out of the kept RECORD where the present one carries our rows."""
    rows = _index_hashes(target)
    if record is not None and record.index is not None and row(target, RECORD_JSON) in rows:
        return recordfile.hashes(original(target, INDEX, record.index).data)
    return rows


def _index_path(target: Target) -> Path:
    dist_info = target.speculators.dist_info
    return (dist_info or home(target)) / INDEX


def _index_hashes(target: Target) -> dict[str, str]:
    found = index(target)
    return recordfile.hashes(found.data) if found else {}


def _verified(path: Path, expected: str) -> bytes:
    data = sealed.read(path)
    if data is None or sha256(data) != expected:
        raise FileError(
            "what apply kept is not what it was",
            where=str(path),
            expected=f"sha256 {expected}",
            found="no such file" if data is None else f"sha256 {sha256(data)}",
            hint=REINSTALL,
        )
    return data

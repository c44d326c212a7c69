"""The steps of an apply: the record, RECORD's rows and the files, as they shall be."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from patcher import record as records
from patcher import recordfile
from patcher.atomic import Step
from patcher.disk import FileState, look, sha256
from patcher.record import INDEX, RECORD_JSON, Kept, PatchedFile, Record
from patcher.revert_steps import home_step, index_without_us
from patcher.target import PATHS, Target

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Facts:
    """What the record says beside hashes: the tool's version, and each rule's outcome."""

    tool: str
    rules: Mapping[str, str]


@dataclass(frozen=True)
class Apply:
    """Plans the steps of one apply: ``found`` stands there now, ``after`` shall."""

    target: Target
    facts: Facts
    epoch: int | None
    record: Record | None
    found: Mapping[str, FileState]
    after: Mapping[str, bytes]

    def steps(self) -> list[Step]:
        """Give the files of the record, RECORD, then the files."""
        index = records.index(self.target)
        contents, record = self._contents(index)
        contents[RECORD_JSON] = self._made(records.encode(record))
        steps = [home_step(self.target, name, contents.get(name)) for name in sorted(records.NAMES)]
        if index is not None:
            steps.append(self._index_step(index, contents, record))
        steps += [Step(name, self.target.path(name), state, self._patched(name)) for name, state in self.found.items()]
        return [step for step in steps if step.before != step.after]

    def _contents(self, index: FileState | None) -> tuple[dict[str, FileState], Record]:
        """Give what the record's folder shall hold, and the record."""
        contents: dict[str, FileState] = {}
        files = [file for name in PATHS if (file := self._file(name, contents))]
        kept = self._keep(INDEX, self._original_index(index), contents) if index is not None else None
        vllm = self.target.vllm
        record = Record(
            tool=self.facts.tool,
            applied=datetime.fromtimestamp(self._seconds(), timezone.utc).isoformat(),
            python=self.target.python,
            speculators=self.target.speculators.version,
            vllm=f"{vllm.name} {vllm.version}" if vllm else None,
            rules=dict(sorted(self.facts.rules.items())),
            files=tuple(files),
            index=kept,
        )
        return contents, record

    def _file(self, name: str, contents: dict[str, FileState]) -> PatchedFile | None:
        """Record one file; where our own patch stands there now, its original stays the original."""
        known = self.record.of(name) if self.record else None
        found = self.found.get(name) or look(self.target.path(name))
        ours = known is not None and found is not None and sha256(found.data) == known.after
        if found is None or (name not in self.after and not ours):
            return None
        first = records.original(self.target, name, known) if known is not None and ours else found
        data = self.after.get(name, found.data)
        kept = self._keep(name, first, contents)
        contents[f"{records.BASENAMES[name]}.patched"] = self._made(data)
        return PatchedFile(path=name, after=sha256(data), before=kept.before, mode=kept.mode, link=kept.link)

    def _keep(self, name: str, first: FileState, contents: dict[str, FileState]) -> Kept:
        """Keep an original: its bytes, and as the copy's mtime its own (never one later than the epoch)."""
        stem = records.BASENAMES[name]
        mtime = first.mtime_ns if self.epoch is None else min(first.mtime_ns, self.epoch * 10**9)
        contents[f"{stem}.original"] = dataclasses.replace(self._made(first.data), mtime_ns=mtime)
        if first.link is not None:
            contents[f"{stem}.link"] = dataclasses.replace(self._made(first.link), mtime_ns=mtime)
        return Kept(before=sha256(first.data), mode=first.mode, link=sha256(first.link) if first.link else None)

    def _original_index(self, index: FileState) -> FileState:
        """Give RECORD as it was before our first apply, with what others changed in it since."""
        rows = recordfile.hashes(index.data)
        if self.record is None or self.record.index is None or records.row(self.target, RECORD_JSON) not in rows:
            return index
        return index_without_us(self.target, self.record.index, index)

    def _index_step(self, index: FileState, contents: Mapping[str, FileState], record: Record) -> Step:
        ours = {records.row(self.target, name): state.data for name, state in contents.items()}
        patched = {file.path: contents[f"{records.BASENAMES[file.path]}.patched"].data for file in record.files}
        data = recordfile.with_rows(self._original_index(index).data, {**patched, **ours}, add=ours)
        after = dataclasses.replace(index, data=data, link=None, mtime_ns=self._stamp(index.mtime_ns))
        return Step(INDEX, records.place(self.target, INDEX), index, after)

    def _patched(self, name: str) -> FileState:
        state = self.found[name]
        seen = self.target.path(name).stat().st_mtime_ns  # behind a link, as bytecode is stamped
        return dataclasses.replace(state, data=self.after[name], link=None, mtime_ns=self._stamp(seen))

    def _made(self, data: bytes) -> FileState:
        """Give a new file of ours the owner of the folder it goes to, and the mode of its neighbours."""
        owner = records.home(self.target).parent.stat()
        mode = next(iter(self.found.values())).mode & 0o666
        return FileState(data, None, mode, owner.st_uid, owner.st_gid, self._stamp(0))

    def _seconds(self) -> float:
        return time.time() if self.epoch is None else self.epoch

    def _stamp(self, before_ns: int) -> int:
        """Give an mtime: the epoch, else now, in another whole second than before (bytecode names only that)."""
        if self.epoch is not None:
            return self.epoch * 10**9
        now = time.time_ns()
        return now + 10**9 if now // 10**9 == before_ns // 10**9 else now

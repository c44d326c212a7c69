"""Facts kept in a file: asked once of a release's source, replayed where no vLLM is at hand.

The file holds names, parameters, defaults and places. It holds no code of the packages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from patcher.errors import TargetError
from patcher.facts_base import Closure, Definition, Facts
from patcher.signature import Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_FORMAT = 1
_SECTIONS = ("symbols", "signatures", "types", "closures", "shapes")

Sections = dict[str, dict[str, Any]]


class Recorder(Facts):
    """Passes every question on to other facts, and keeps the answers.

    Args:
        facts: who answers.
        packages: what the record covers. Questions on other packages are answered but not kept, so that a record of
            vLLM does not depend on what else was installed.
    """

    def __init__(self, facts: Facts, packages: Iterable[str] = ("vllm",)) -> None:
        self._facts = facts
        self._packages = frozenset(packages)
        self._sections: Sections = {name: {} for name in _SECTIONS}

    @property
    def packages(self) -> frozenset[str]:
        """The packages that the record covers."""
        return self._packages

    def symbol(self, dotted: str) -> Definition | None:
        """See Facts.symbol."""
        answer = self._facts.symbol(dotted)
        self._keep("symbols", dotted, _encode_definition(dotted, answer))
        return answer

    def closure(self, dotted: str) -> Closure:
        """See Facts.closure."""
        answer = self._facts.closure(dotted)
        self._keep("closures", dotted, answer)
        return answer

    def type_of(self, dotted: str) -> str | None:
        """See Facts.type_of."""
        answer = self._facts.type_of(dotted)
        self._keep("types", dotted, answer)
        return answer

    def _signature(self, dotted: str) -> Signature | None:
        answer = self._facts._signature(dotted)
        self._keep("signatures", dotted, _encode_signature(answer))
        return answer

    def _shape(self, dotted: str, pattern: str) -> bool:
        answer = self._facts._shape(dotted, pattern)
        if self._covers(dotted):
            self._sections["shapes"].setdefault(dotted, {})[pattern] = answer
        return answer

    def _keep(self, section: str, dotted: str, answer: object) -> None:
        if self._covers(dotted):
            self._sections[section][dotted] = answer

    def _covers(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in self._packages

    def dump(self) -> bytes:
        """The record as JSON: sorted, one answer a line, so that a change of vLLM is a small diff."""
        parts = [f' "format": {_FORMAT}', f' "packages": {json.dumps(sorted(self._packages))}']
        parts += [f' "{name}": {_lines(self._sections[name])}' for name in _SECTIONS]
        return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


class RecordedFacts(Facts):
    """Answers from a record. A question that was never recorded is an error, never a no.

    Args:
        content: what Recorder.dump wrote.
        name: of the record, for messages: its path, or the release.
    """

    def __init__(self, content: bytes, name: str = "the recorded facts") -> None:
        self._name = name
        self._sections, self._packages = _load(content, name)

    @classmethod
    def read(cls, path: Path) -> RecordedFacts:
        """The record in a file.

        Raises:
            TargetError: the file can't be read, or is no record of this format.
        """
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            raise TargetError(f"recorded facts can't be read: {error.strerror}", where=str(path)) from error

    @property
    def packages(self) -> frozenset[str]:
        """The packages that the record covers."""
        return self._packages

    def symbol(self, dotted: str) -> Definition | None:
        """See Facts.symbol."""
        return _decode_definition(dotted, self._answer("symbols", dotted))

    def closure(self, dotted: str) -> Closure:
        """See Facts.closure."""
        answer: Closure = self._answer("closures", dotted)
        return answer

    def type_of(self, dotted: str) -> str | None:
        """See Facts.type_of."""
        answer: str | None = self._answer("types", dotted)
        return answer

    def _signature(self, dotted: str) -> Signature | None:
        return _decode_signature(self._answer("signatures", dotted))

    def _shape(self, dotted: str, pattern: str) -> bool:
        answers: Mapping[str, bool] = self._answer("shapes", dotted)
        if pattern not in answers:
            raise self._unknown(f"has_shape({dotted!r}, {pattern!r})")
        return answers[pattern]

    def _answer(self, section: str, dotted: str) -> Any:
        if dotted not in self._sections[section]:
            raise self._unknown(f"{section}: {dotted}")
        return self._sections[section][dotted]

    def _unknown(self, question: str) -> TargetError:
        return TargetError(
            "the recorded facts do not hold an answer to this question",
            where=self._name,
            found=question,
            hint="record the facts of this release again with the rules and files that ask it",
        )


def record(facts: Facts, ask: Iterable[Callable[[Facts], object]], packages: Iterable[str] = ("vllm",)) -> bytes:
    """Ask every question of the facts and give the record of the answers.

    Args:
        facts: who answers.
        ask: each is called with the facts, and asks what it likes; what it gives back is dropped.
        packages: what the record covers.
    """
    recorder = Recorder(facts, packages)
    for question in ask:
        question(recorder)
    return recorder.dump()


def _load(content: bytes, name: str) -> tuple[Sections, frozenset[str]]:
    try:
        data = json.loads(content)
        if data["format"] != _FORMAT:
            raise TargetError(
                "the recorded facts have another format", where=name, expected=str(_FORMAT), found=str(data["format"])
            )
        return {section: data[section] for section in _SECTIONS}, frozenset(data["packages"])
    except (ValueError, KeyError, TypeError) as error:
        raise TargetError("the file holds no recorded facts", where=name, found=str(error)) from error


def _lines(section: Mapping[str, object]) -> str:
    rows = [
        f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'), sort_keys=True, ensure_ascii=False)}"
        for key, value in sorted(section.items())
    ]
    return "{\n" + ",\n".join(rows) + "\n }" if rows else "{}"


def _encode_definition(asked: str, definition: Definition | None) -> list[object] | None:
    if definition is None:
        return None
    moved = [definition.dotted] if definition.dotted != asked else []
    return [definition.kind, definition.file, definition.line, *moved]


def _decode_definition(asked: str, answer: list[Any] | None) -> Definition | None:
    if answer is None:
        return None
    kind, file, line, *moved = answer
    return Definition(kind, moved[0] if moved else asked, file, line)


def _encode_signature(signature: Signature | None) -> dict[str, object] | None:
    if signature is None:
        return None
    flags = {name: True for name in ("open", "drops_unknown") if getattr(signature, name)}
    return {"parameters": signature.encode(), **flags}


def _decode_signature(answer: dict[str, Any] | None) -> Signature | None:
    if answer is None:
        return None
    return Signature.decode(
        answer["parameters"], open=answer.get("open", False), drops_unknown=answer.get("drops_unknown", False)
    )

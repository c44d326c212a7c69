"""What a rule file may say: the keys, and what each of them means."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
WORKER = "speculators/data_generation/custom_worker.py"
PACKAGE = "speculators"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts: TypeAlias = "str | tuple[str, ...]"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern asked of the source of a function, class or module of the installed packages."""

    inside: Text
    pattern: Text


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"none": "not"}):
    """What must hold of the installed packages. Every line must hold; under ``not`` no line may.

    ``symbol`` "a.b.c"; ``parameter`` and ``required`` "a.b.c(name)"; ``default`` "a.b.c(name) = value".
    """

    symbol: Texts = ()
    parameter: Texts = ()
    required: Texts = ()
    default: Texts = ()
    shape: tuple[Shape, ...] = ()
    none: Probe | None = None


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One form of the source and what becomes of it; an empty fix deletes statements."""

    pattern: Text
    fix: str
    known: dict[str, tuple[str, ...]] = {}

    def __hash__(self) -> int:
        return hash((self.pattern, self.fix))


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change: replace (``pattern`` and ``fix``, or several ``case``), or ``insert`` before or after an anchor.

    ``unless`` are the forms that count as done already; left out, the fix itself is one. ``known`` holds, for a
    captured run, the digests of the code that may be replaced.
    """

    file: str | None = None
    inside: str | None = None
    when: Probe | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=50)] = 1
    unless: Texts = ()
    pattern: str | None = None
    fix: str | None = None
    known: dict[str, tuple[str, ...]] = {}
    case: tuple[Case, ...] = ()
    before: Texts = ()
    after: Texts = ()
    insert: str | None = None

    def __hash__(self) -> int:
        return hash((self.file, self.inside, self.pattern, self.fix, self.case, self.before, self.after, self.insert))

    @property
    def anchors(self) -> tuple[str, ...]:
        """The patterns that an insertion stands by; the first that is found counts."""
        return texts(self.before) or texts(self.after)


class Imports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Imports of one file. ``move`` maps old dotted names to new ones."""

    file: str | None = None
    when: Probe | None = None
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    move: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.file, self.add, self.remove, tuple(self.move.items())))


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys of a rule file."""

    title: Text
    why: Text
    symptom: Text
    file: str = GENERATOR
    links: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    when: Probe = Probe()
    edit: tuple[Edit, ...] = ()
    imports: tuple[Imports, ...] = ()
    advice: str | None = None


class Rule(RuleFile, frozen=True):
    """A rule with its id."""

    id: str = ""

    def __hash__(self) -> int:
        return hash((self.id, self.edit, self.imports))

    @property
    def parts(self) -> tuple[Edit | Imports, ...]:
        """All that the rule does. Imports come first: an edit may stand by one."""
        return (*self.imports, *self.edit)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the rule may change, relative to site-packages, each once."""
        named = [part.file or self.file for part in self.parts] or [self.file]
        return tuple(dict.fromkeys(named))


def texts(value: Texts) -> tuple[str, ...]:
    """A key that takes one text or several, as several."""
    return (value,) if isinstance(value, str) else value

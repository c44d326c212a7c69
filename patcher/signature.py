"""What a callable accepts, and whether a call fits it.

The texts of defaults are source code; nothing is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ParameterKind = Literal["positional-only", "ordinary", "var-positional", "keyword-only", "var-keyword"]

_POSITIONAL = ("positional-only", "ordinary")
_BY_NAME = ("ordinary", "keyword-only")
_VARIABLE = ("var-positional", "var-keyword")


@dataclass(frozen=True)
class Parameter:
    """One parameter; ``default`` is the source text of its default, or None where it has none."""

    name: str
    kind: ParameterKind = "ordinary"
    default: str | None = None

    @property
    def required(self) -> bool:
        """Must a call give it?"""
        return self.default is None and self.kind not in _VARIABLE

    @property
    def text(self) -> str:
        """The parameter as it is written: ``x``, ``x=1``, ``*args``."""
        stars = {"var-positional": "*", "var-keyword": "**"}.get(self.kind, "")
        return stars + self.name + ("" if self.default is None else f"={self.default}")


@dataclass(frozen=True)
class Signature:
    """The parameters a caller fills in: without ``self`` or ``cls``.

    Args:
        parameters: in the order of the call.
        open: True where source reading can't tell all of it (an unknown base or decorator); no call is judged.
        drops_unknown: True where an unknown keyword raises nothing and has no effect. That is what a pydantic
            dataclass does unless its config says ``extra="forbid"``.
    """

    parameters: tuple[Parameter, ...]
    open: bool = False
    drops_unknown: bool = False

    def get(self, name: str) -> Parameter | None:
        """The parameter of that name, or None."""
        return next((p for p in self.parameters if p.name == name), None)

    def __str__(self) -> str:
        return "(" + ", ".join([*self.encode(), *(["..."] if self.open else [])]) + ")"

    def encode(self) -> list[str]:
        """The parameters as texts, with the markers ``/`` and ``*`` of Python between them."""
        return list(_texts(self.parameters))

    @classmethod
    def decode(cls, texts: Iterable[str], *, open: bool = False, drops_unknown: bool = False) -> Signature:  # noqa: A002
        """The signature that :meth:`encode` wrote."""
        parameters: list[Parameter] = []
        kind: ParameterKind = "ordinary"
        for text in texts:
            if text == "/":
                parameters = [Parameter(p.name, "positional-only", p.default) for p in parameters]
            elif text == "*":
                kind = "keyword-only"
            else:
                parameters.append(_parameter(text, kind))
                kind = "keyword-only" if text.startswith("*") else kind
        return cls(tuple(parameters), open=open, drops_unknown=drops_unknown)


@dataclass(frozen=True)
class CallShape:
    """What a call passes, as far as its text tells.

    Args:
        positional: how many positional arguments stand before the first ``*args``.
        keywords: the names passed by keyword.
        star: the call has ``*args``.
        double_star: the call has ``**kwargs``.
        partial: more arguments may come later (``functools.partial``).
    """

    positional: int = 0
    keywords: tuple[str, ...] = ()
    star: bool = False
    double_star: bool = False
    partial: bool = False


def problems(signature: Signature, call: CallShape) -> list[str]:
    """Why the call can't bind, one sentence a reason; empty if it binds or can't be judged."""
    if signature.open:
        return []
    return [*_surplus(signature, call), *_unknown(signature, call), *_missing(signature, call)]


def _surplus(signature: Signature, call: CallShape) -> Iterator[str]:
    by_place = [p for p in signature.parameters if p.kind in _POSITIONAL]
    takes_rest = any(p.kind == "var-positional" for p in signature.parameters)
    if call.positional > len(by_place) and not takes_rest:
        yield f"takes at most {len(by_place)} positional arguments, {call.positional} are given"
    for parameter in by_place[: call.positional]:
        if parameter.name in call.keywords and parameter.kind == "ordinary":
            yield f"argument {parameter.name!r} is given twice"


def _unknown(signature: Signature, call: CallShape) -> Iterator[str]:
    if any(p.kind == "var-keyword" for p in signature.parameters):
        return
    known = {p.name for p in signature.parameters if p.kind in _BY_NAME}
    effect = ": it would be dropped in silence" if signature.drops_unknown else ""
    for name in call.keywords:
        if name not in known:
            yield f"no parameter {name!r}{effect}"


def _missing(signature: Signature, call: CallShape) -> Iterator[str]:
    if call.partial:
        return
    place = 0
    for parameter in signature.parameters:
        by_place = parameter.kind in _POSITIONAL and (place < call.positional or call.star)
        place += parameter.kind in _POSITIONAL
        by_name = parameter.kind in _BY_NAME and (parameter.name in call.keywords or call.double_star)
        if parameter.required and not by_place and not by_name:
            yield f"required argument {parameter.name!r} is missing"


def _texts(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    previous: ParameterKind | None = None
    for parameter in parameters:
        if previous == "positional-only" and parameter.kind != "positional-only":
            yield "/"
        if parameter.kind == "keyword-only" and previous not in ("keyword-only", "var-positional"):
            yield "*"
        yield parameter.text
        previous = parameter.kind
    if previous == "positional-only":
        yield "/"


def _parameter(text: str, kind: ParameterKind) -> Parameter:
    if text.startswith("**"):
        return Parameter(text[2:], "var-keyword")
    if text.startswith("*"):
        return Parameter(text[1:], "var-positional")
    name, equals, default = text.partition("=")
    return Parameter(name, kind, default if equals else None)

"""Asks a rule's conditions of the facts.

A line about a package that the facts do not cover is passed over: planned for a vLLM that is not at hand, nobody
knows which transformers will be beside it, and the rule is then planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from patcher.rule import Probe, texts

if TYPE_CHECKING:
    from patcher.facts import Facts


def holds(probe: Probe, facts: Facts) -> bool:
    """Do all lines of a probe hold, and none under its ``not``?"""
    return all(_answers(probe, facts))


def _answers(probe: Probe, facts: Facts) -> Iterator[bool]:
    """One answer a line; a ``not`` is one line, and holds if none of its own lines does."""

    def covered(text: str) -> bool:
        return text.partition(".")[0] in facts.packages

    yield from (facts.has_symbol(text) for text in texts(probe.symbol) if covered(text))
    yield from (facts.has_parameter(text) for text in texts(probe.parameter) if covered(text))
    yield from (facts.is_required(text) for text in texts(probe.required) if covered(text))
    for text in filter(covered, texts(probe.default)):
        dotted, _, value = text.partition("=")
        yield facts.default_is(dotted.strip(), value.strip())
    yield from (facts.has_shape(shape.inside, shape.pattern) for shape in probe.shape if covered(shape.inside))
    if probe.none is not None:
        yield not any(_answers(probe.none, facts))

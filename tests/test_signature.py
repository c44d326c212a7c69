"""Binding calls, judged against Python itself."""

from __future__ import annotations

import inspect

from hypothesis import assume, given
from hypothesis import strategies as st

from patcher.signature import CallShape, Signature, problems
from tests.test_facts_recorded import names, signatures

KINDS = {
    "positional-only": inspect.Parameter.POSITIONAL_ONLY,
    "ordinary": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "var-positional": inspect.Parameter.VAR_POSITIONAL,
    "keyword-only": inspect.Parameter.KEYWORD_ONLY,
    "var-keyword": inspect.Parameter.VAR_KEYWORD,
}


def real(signature: Signature) -> inspect.Signature | None:
    """Python's own; None where a parameter without default follows one with: fields may, functions may not."""
    parameters = [
        inspect.Parameter(p.name, KINDS[p.kind], default=inspect.Parameter.empty if p.default is None else p.default)
        for p in signature.parameters
    ]
    try:
        return inspect.Signature(parameters)
    except ValueError:
        return None


@given(signatures().filter(real), st.integers(0, 5), st.lists(names, unique=True, max_size=4), st.data())
def test_a_call_has_problems_if_and_only_if_python_refuses_it(
    signature: Signature, positional: int, others: list[str], data: st.DataObject
) -> None:
    known = [p.name for p in signature.parameters]
    keywords = [*data.draw(st.lists(st.sampled_from(known), unique=True)), *others] if known else others
    keywords = list(dict.fromkeys(keywords))
    found = problems(signature, CallShape(positional, tuple(keywords)))
    # Where **kwargs takes the name of a positional-only parameter, inspect of Python 3.11 refuses what Python accepts.
    assume(not any(p.kind == "positional-only" and p.name in keywords for p in signature.parameters))
    python = real(signature)
    assert python is not None
    try:
        python.bind(*range(positional), **dict.fromkeys(keywords, 0))
    except TypeError:
        assert found
    else:
        assert not found


@given(signatures(), st.integers(0, 5), st.lists(names, unique=True, max_size=4))
def test_an_open_signature_is_not_judged(signature: Signature, positional: int, keywords: list[str]) -> None:
    unreadable = Signature(signature.parameters, open=True)
    assert problems(unreadable, CallShape(positional, tuple(keywords))) == []


def test_what_a_call_leaves_open_is_not_held_against_it() -> None:
    signature = Signature.decode(["a", "b", "*", "c"])
    assert len(problems(signature, CallShape())) == 3
    assert problems(signature, CallShape(star=True)) == ["required argument 'c' is missing"]
    assert problems(signature, CallShape(double_star=True)) == []
    assert problems(signature, CallShape(partial=True)) == []
    assert problems(signature, CallShape(partial=True, keywords=("d",))) == ["no parameter 'd'"]


def test_a_positional_only_name_is_no_keyword() -> None:
    assert problems(Signature.decode(["a", "/"]), CallShape(keywords=("a",))) == [
        "no parameter 'a'",
        "required argument 'a' is missing",
    ]
    assert problems(Signature.decode(["a=1", "/", "**k"]), CallShape(keywords=("a",))) == []

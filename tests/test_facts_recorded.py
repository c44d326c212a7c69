"""Facts that were recorded answer as the source did, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcher.errors import TargetError
from patcher.facts import Facts, RecordedFacts, Recorder, Signature, SourceFacts, record
from patcher.session import record_facts
from patcher.signature import Parameter, ParameterKind
from tests.golden import FACTS
from tests.releases import SPECULATORS_RELEASES, VLLM_RELEASES, speculators_folder, transformers_for, vllm_tree

SOURCE = """
from dataclasses import dataclass
from elsewhere import mystery
from pydantic.dataclasses import dataclass as strict
@dataclass
class C:
    a: int
    b: "C | None" = None
    def m(self, /, x, *args, y, **kwargs): ...
@strict
class Loose:
    a: int
@mystery
def unreadable(x): ...
def f(): return replies[0]
alias = C
"""


@pytest.fixture
def source(tmp_path: Path) -> SourceFacts:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text(SOURCE, encoding="utf-8")
    return SourceFacts({"p": tmp_path / "p"})


def ask(facts: Facts) -> list[object]:
    names = ("C", "C.m", "C.b", "Loose", "unreadable", "f", "alias", "gone")
    return [
        *(facts.symbol(f"p.{name}") for name in names),
        *(facts.signature(f"p.{name}") for name in names),
        *(facts.type_of(f"p.{name}") for name in names),
        *(facts.closure(f"p.{name}") for name in ("C", "gone")),
        facts.has_parameter("p.C.__init__(a)"),
        facts.is_required("p.C(b)"),
        facts.default_is("p.C(b)", "None"),
        facts.has_shape("p.f", "return $X[0]"),
        facts.has_shape("p.f", "return $X[1]"),
    ]


def test_a_record_answers_as_the_source_did(source: SourceFacts) -> None:
    replay = RecordedFacts(record(source, [ask], packages=["p"]))
    assert ask(replay) == ask(source)
    assert replay.packages == source.packages


def test_a_record_is_the_same_whatever_the_order_of_the_questions(source: SourceFacts) -> None:
    forth, back = Recorder(source, ["p"]), Recorder(source, ["p"])
    ask(forth)
    for name in ("gone", "f", "C"):
        back.symbol(f"p.{name}")
    ask(back)
    assert forth.dump() == back.dump()
    assert forth.dump() != Recorder(source, ["p"]).dump()


@pytest.mark.parametrize(
    "question",
    [
        lambda facts: facts.symbol("p.never"),
        lambda facts: facts.signature("p.never"),
        lambda facts: facts.type_of("p.never"),
        lambda facts: facts.closure("p.never"),
        lambda facts: facts.has_parameter("p.never(x)"),
        lambda facts: facts.has_shape("p.f", "return replies[7]"),
    ],
)
def test_a_question_that_was_never_recorded_is_refused(source: SourceFacts, question: object) -> None:
    replay = RecordedFacts(record(source, [ask], packages=["p"]), "a.json")
    assert callable(question)
    assert not question(source) or question(source) == "open"
    with pytest.raises(TargetError, match="do not hold an answer") as caught:
        question(replay)
    assert caught.value.where == "a.json"


def test_other_packages_are_answered_and_not_kept(source: SourceFacts) -> None:
    recorder = Recorder(source, packages=["vllm"])
    assert ask(recorder) == ask(source)
    assert recorder.dump() == Recorder(source, packages=["vllm"]).dump()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 99}', b"\xff"])
def test_what_is_no_record_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TargetError):
        RecordedFacts.read(path)
    with pytest.raises(TargetError, match="can't be read"):
        RecordedFacts.read(tmp_path / "absent.json")


names = st.sampled_from("abcdefghijklmnop")
defaults = st.sampled_from(["1", "None", "'a=b'", "f(x=1)", "[1, '*']"])


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    kinds: list[ParameterKind] = ["positional-only", "ordinary", "var-positional", "keyword-only", "var-keyword"]
    single = ("var-positional", "var-keyword")
    chosen = [k for kind in kinds for k in [kind] * draw(st.integers(0, 1 if kind in single else 3))]
    taken = draw(st.lists(names, min_size=len(chosen), max_size=len(chosen), unique=True))
    parameters = [
        Parameter(name, kind, None if kind in single else draw(st.none() | defaults))
        for name, kind in zip(taken, chosen, strict=True)
    ]
    return Signature(tuple(parameters))


@given(signatures())
def test_signatures_survive_the_record(signature: Signature) -> None:
    assert Signature.decode(signature.encode()) == signature


# The golden facts


def test_there_is_a_record_of_every_release_and_no_other() -> None:
    assert sorted(path.stem for path in FACTS.glob("*.json")) == sorted(VLLM_RELEASES)


@pytest.mark.parametrize("version", VLLM_RELEASES)
def test_golden_facts_are_small_and_hold_no_code(version: str) -> None:
    content = (FACTS / f"{version}.json").read_bytes()
    data = json.loads(content)
    assert len(content) < 60_000
    assert data["packages"] == ["transformers", "vllm"]
    signatures_text = [text for answer in data["signatures"].values() if answer for text in answer["parameters"]]
    assert max(map(len, signatures_text)) < 200
    assert not any("\n" in text for text in signatures_text)


@pytest.mark.parametrize("version", ["0.11.0", "0.16.0", "0.32.0"])
def test_golden_facts_are_what_the_source_says_today(version: str) -> None:
    """If this fails after a change of the rules: python -m tests.golden --facts, and read the difference."""
    folders = [speculators_folder(release) for release in SPECULATORS_RELEASES]
    transformers = transformers_for(version) / "transformers"
    fresh = record_facts(vllm_tree(version) / "vllm", folders, transformers)
    assert fresh.decode() == (FACTS / f"{version}.json").read_text(encoding="utf-8")

"""Findings in small files about a small package, and in the released files about 35 releases of vLLM."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from patcher.conformance import Finding, check
from patcher.errors import DriftError
from patcher.facts import RecordedFacts, SourceFacts
from tests.golden import FACTS, version_key
from tests.releases import VLLM_RELEASES, speculators_files, transformers_for, vllm_tree

FILE = "q/worker.py"
PACKAGE = {
    "__init__": "",
    "config": """
        from dataclasses import dataclass
        @dataclass
        class Cache:
            size: int = 1
            def grow(self, by): ...
        @dataclass
        class Config:
            cache: Cache | None = None
        """,
    "engine": """
        import abc
        from p.config import Config
        class Base(abc.ABC):
            @abc.abstractmethod
            def step(self, x): ...
            def stop(self): ...
        class Engine(Base):
            def __init__(self, config: Config, *, block=16):
                self.config = config
            def step(self, x): ...
            def plan(self) -> Config: ...
            @classmethod
            def make(cls, name) -> "Engine": ...
        def run(first, second=2): ...
        def build() -> Engine: ...
        def base() -> Base: ...
        """,
    "states": "import enum\nclass State(enum.Enum):\n    DONE = 1\n",
}
HEAD = "from p.engine import Engine, run, build, base\nfrom p import engine\nfrom p.config import Config\n"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> SourceFacts:
    root = tmp_path_factory.mktemp("site") / "p"
    root.mkdir()
    for name, source in PACKAGE.items():
        (root / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    return SourceFacts({"p": root})


def findings(source: str, facts: SourceFacts, head: str = HEAD) -> list[Finding]:
    return check({FILE: (head + textwrap.dedent(source)).encode()}, facts)


def problems(source: str, facts: SourceFacts, head: str = HEAD) -> list[str]:
    return [finding.problem for finding in findings(source, facts, head)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import p.engine as e, os", []),
        ("import p.gone", ["no such module"]),
        ("from p.gone import x", ["no module p.gone"]),
        ("from p.engine import run, walk", ["p.engine has no 'walk'"]),
        ("from p.gone import *", ["no module p.gone"]),
        ("from torch.gone import x", []),
        ("def f():\n    from p.engine import walk", ["p.engine has no 'walk'"]),
        ("from .sibling import x", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.gone import x", []),
    ],
)
def test_imports(facts: SourceFacts, source: str, expected: list[str]) -> None:
    assert problems(source, facts, head="") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("run(1)", []),
        ("run(1, second=2)", []),
        ("run()", ["required argument 'first' is missing"]),
        ("run(1, third=3)", ["no parameter 'third'"]),
        ("run(1, 2, 3)", ["takes at most 2 positional arguments, 3 are given"]),
        ("run(1, first=1)", ["argument 'first' is given twice"]),
        ("run(*args)", []),
        ("run(1, *args, third=3)", ["no parameter 'third'"]),
        ("run(**kwargs)", []),
        ("run(third=3, **kwargs)", ["no parameter 'third'"]),
        ("Engine(Config(), block=1)", []),
        ("Engine(Config(), 1)", ["takes at most 1 positional arguments, 2 are given"]),
        ("Engine(config=Config(cahce=1))", ["no parameter 'cahce'"]),
        ("engine.run()", ["required argument 'first' is missing"]),
        ("engine.walk()", ["p.engine has no 'walk'"]),
        ("import p.engine\np.engine.run()", ["required argument 'first' is missing"]),
        ("from p.engine import Engine as E\nE()", ["required argument 'config' is missing"]),
        ("go = run\ngo()", ["required argument 'first' is missing"]),
        ("import functools\nfunctools.partial(run, third=1)", ["no parameter 'third'"]),
        ("from functools import partial\npartial(run, second=1)", []),
        ("getattr(engine, 'run')()", ["required argument 'first' is missing"]),
        ("run = other\nrun()", []),
        ("for run in runs:\n    run()", []),
        ("def f(run):\n    run()", []),
        ("[run() for run in runs]", []),
        ("lambda run: run()", []),
    ],
)
def test_calls(facts: SourceFacts, source: str, expected: list[str]) -> None:
    assert problems(source, facts) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("e = Engine(Config())\ne.step(1)\ne.stop()", []),
        ("e = Engine(Config())\ne.step()", ["required argument 'x' is missing"]),
        ("e = Engine(Config())\ne.walk()", ["p.engine.Engine has no 'walk'"]),
        ("build().walk()", ["p.engine.Engine has no 'walk'"]),
        ("Engine.make('n').walk()", ["p.engine.Engine has no 'walk'"]),
        ("Engine.make()", ["required argument 'name' is missing"]),
        ("Engine.step(e, 1)", []),
        ("Engine.walk(e)", ["p.engine.Engine has no 'walk'"]),
        ("base().walk()", []),
        ("base().step()", ["required argument 'x' is missing"]),
        ("build().plan().cache.grow()", ["required argument 'by' is missing"]),
        ("build().config.cache.shrink()", ["p.config.Cache has no 'shrink'"]),
        ("build().config.cache.no_such_field", []),
        ("def f(e: 'Engine | None'):\n    e.walk()", ["p.engine.Engine has no 'walk'"]),
        ("def f(e: list[Engine]):\n    e.walk()", []),
        ("e = Engine(Config())\ne = other()\ne.walk()", []),
        ("while (e := build()).plan():\n    e.walk()", ["p.engine.Engine has no 'walk'"]),
        ("with build() as e:\n    e.walk()", []),
        ("from p.states import State\nState.DONE", []),
        ("from p.states import State\nState.GONE", ["p.states.State has no 'GONE'"]),
        ("from p.states import State\nState.DONE.anything()", []),
    ],
)
def test_members(facts: SourceFacts, source: str, expected: list[str]) -> None:
    assert problems(source, facts) == expected


CLASS = """
class Worker{base}:
    def __init__(self, config):
        self.config = self._config()
        self.engine = None
        self.engine = Engine(self.config)
        {init}

    def _config(self) -> Config:
        return Config()

    def work(self):
        {work}
"""


@pytest.mark.parametrize(
    ("init", "work", "expected"),
    [
        ("pass", "self.engine.step(1)", []),
        ("pass", "self.engine.walk()", ["p.engine.Engine has no 'walk'"]),
        ("pass", "self.config.cache.shrink()", ["p.config.Cache has no 'shrink'"]),
        ("pass", "self._config().cache.shrink()", ["p.config.Cache has no 'shrink'"]),
        ("self.engine = other()", "self.engine.walk()", []),
        ("self.engine, self.x = both()", "self.engine.walk()", []),
        ("self.loop = self.loop", "self.loop.walk()", []),
        ("me = self", "self.work(1, 2, 3)", []),
    ],
)
def test_attributes_of_self(facts: SourceFacts, init: str, work: str, expected: list[str]) -> None:
    assert problems(CLASS.format(base="", init=init, work=work), facts) == expected


def test_own_methods_come_before_inherited_ones(facts: SourceFacts) -> None:
    source = CLASS.format(base="(Engine)", init="pass", work="self.plan(1); self.stop()")
    assert problems(source, facts) == ["takes at most 0 positional arguments, 1 are given"]
    assert problems(source + "\n    def plan(self, x): ...\n", facts) == []


@pytest.mark.parametrize(
    "source",
    [
        "if hasattr(e, 'walk'):\n    e.walk()",
        "if not hasattr(e, 'walk'):\n    pass\nelse:\n    e.walk()",
        "hasattr(e, 'walk') and e.walk()",
        "e.walk() if hasattr(e, 'walk') else None",
        "if getattr(e, 'walk', None) is not None:\n    e.walk()",
        "def f():\n    if not hasattr(e, 'walk'):\n        return\n    e.walk()",
        "try:\n    e.walk()\nexcept AttributeError:\n    pass",
        "try:\n    e.step()\nexcept TypeError:\n    e.step(1)",
        "try:\n    from p.gone import x\nexcept ImportError:\n    x = None",
        "try:\n    import p.gone\nexcept Exception:\n    pass",
        "try:\n    from p.engine import run\nexcept ImportError:\n    from p.gone import run",
        "try:\n    from p.gone import go\nexcept ImportError:\n    from p.engine import run as go\ngo(1)",
        "from importlib.util import find_spec\nif find_spec('p.gone'):\n    from p.gone import x",
    ],
)
def test_code_that_asks_first_is_no_break(facts: SourceFacts, source: str) -> None:
    assert problems("e = build()\n" + source, facts) == []


@pytest.mark.parametrize(
    "source",
    [
        "if hasattr(e, 'walk'):\n    pass\ne.walk()",
        "if hasattr(e, 'run'):\n    e.walk()",
        "if hasattr(other, 'walk'):\n    e.walk()",
        "if hasattr(e, 'walk'):\n    pass\nelse:\n    e.walk()",
        "hasattr(e, 'walk') or e.walk()",
        "try:\n    e.walk()\nexcept ValueError:\n    pass",
        "try:\n    e.walk()\nexcept Exception:\n    tidy()\n    raise",
        "try:\n    from p.gone import x\nexcept ValueError:\n    x = None",
        "try:\n    from p.gone import x\nexcept ImportError:\n    from p.away import x",
        "try:\n    from p.gone import go\nexcept ImportError:\n    from p.engine import run as go\ngo()",
        "from importlib.util import find_spec\nif find_spec('p.other'):\n    from p.gone import x",
    ],
)
def test_code_that_asks_something_else_is_a_break(facts: SourceFacts, source: str) -> None:
    assert len(problems("e = build()\n" + source, facts)) == 1


def test_a_finding_says_what_is_installed_and_where(facts: SourceFacts) -> None:
    (finding,) = findings("run(1, third=3)", facts)
    assert str(finding) == (
        "q/worker.py:4: run(1, third=3): no parameter 'third'\n"
        "  installed: p.engine.run(first, second=2)\n"
        "  defined at p/engine.py:15"
    )
    (missing,) = findings("engine.walk", facts)
    assert str(missing) == "q/worker.py:4: engine.walk: p.engine has no 'walk'\n  looked in p/engine.py:1"


def test_the_files_under_test_are_not_looked_up_in_the_installed_package(facts: SourceFacts) -> None:
    other = b"from p.worker import new_name\nfrom p.engine import walk\n"
    found = check({"p/worker.py": b"def new_name(): ...\n", "p/user.py": other}, facts)
    assert [finding.symbol for finding in found] == ["p.engine.walk"]


def test_a_file_that_does_not_parse_is_drift(facts: SourceFacts) -> None:
    with pytest.raises(DriftError, match="is not Python"):
        check({FILE: b"def f(:\n"}, facts)


# The released files. Which release breaks what was found by hand before this module was written.

BLOCK_SIZE = "Scheduler: required argument 'block_size' is missing"
ENCODER = "SchedulerConfig: required argument 'is_encoder_decoder' is missing"
SPECS = "get_kv_cache_config_from_groups: no parameter 'kv_cache_specs'"
NO_SPECS = "get_kv_cache_config_from_groups: required argument 'kv_cache_specs' is missing"
EOS = "Request: no parameter 'eos_token_id'"
HELPERS = ("_get_kv_cache_groups_uniform_spec", "get_kv_cache_config_from_groups", "unify_hybrid_kv_cache_specs")
MOVED = [f"{name}: vllm.v1.core.kv_cache_utils has no '{name}'" for name in HELPERS]
FIRST = {  # from this release on, until the next line's
    "0.3.0": {
        "0.11.0": [],
        "0.11.1": [BLOCK_SIZE],
        "0.12.0": [BLOCK_SIZE, ENCODER, SPECS],
        "0.17.0": [BLOCK_SIZE, ENCODER, SPECS, EOS],
        "0.33.0": [BLOCK_SIZE, ENCODER, EOS, *MOVED],
    },
    "0.4.0.1": {
        "0.11.0": [
            NO_SPECS,
            "get_hash_fn_by_name: no module vllm.utils.hashing",
            "Scheduler: no parameter 'block_size'",
            # Measured with pydantic 2: a dataclass that does not forbid extra arguments drops them.
            "SchedulerConfig: no parameter 'is_encoder_decoder': it would be dropped in silence",
            "sample_tokens: vllm.v1.executor.multiproc_executor.MultiprocExecutor has no 'sample_tokens'",
        ],
        "0.11.1": [NO_SPECS],
        "0.12.0": [],
        "0.17.0": [EOS],
        "0.33.0": [EOS, *MOVED],
    },
}


def expected(speculators: str, vllm: str) -> list[str]:
    starts = [start for start in FIRST[speculators] if version_key(start) <= version_key(vllm)]
    return sorted(FIRST[speculators][max(starts, key=version_key)])


def breaks(found: list[Finding]) -> list[str]:
    return sorted(f"{finding.symbol.rpartition('.')[2]}: {finding.problem}" for finding in found)


@pytest.mark.parametrize("speculators", ["0.3.0", "0.4.0.1"])
@pytest.mark.parametrize("vllm", VLLM_RELEASES)
def test_the_breaks_of_every_pair_are_found(speculators: str, vllm: str) -> None:
    recorded = RecordedFacts.read(FACTS / f"{vllm}.json")
    assert breaks(check(speculators_files(speculators), recorded)) == expected(speculators, vllm)


@pytest.mark.parametrize("vllm", ["0.11.0", "0.16.0", "0.32.0"])
def test_source_and_recorded_facts_give_the_same_findings(vllm: str) -> None:
    roots = {"vllm": vllm_tree(vllm) / "vllm", "transformers": transformers_for(vllm) / "transformers"}
    recorded, source = RecordedFacts.read(FACTS / f"{vllm}.json"), SourceFacts(roots)
    for speculators in FIRST:
        files = speculators_files(speculators)
        assert check(files, source) == check(files, recorded)


@pytest.mark.parametrize("folder", ["config", "v1/core", "v1/engine", "v1/executor"])
def test_vllm_conforms_to_itself(folder: str) -> None:
    """No false alarms: thousands of imports and calls that are known to work."""
    site = vllm_tree("0.16.0")
    paths = sorted((site / "vllm" / folder).rglob("*.py"))
    assert len(paths) > 5
    source = SourceFacts({"vllm": site / "vllm"})
    for path in paths:
        assert check({path.relative_to(site).as_posix(): path.read_bytes()}, source) == []


def test_a_broken_copy_of_vllm_does_not_conform() -> None:
    """The control of the test above: the same files, one name changed."""
    site = vllm_tree("0.16.0")
    name = "vllm/v1/engine/core.py"
    text = (site / name).read_text(encoding="utf-8")
    source = SourceFacts({"vllm": site / "vllm"})
    broken = text.replace("init_none_hash", "init_no_hash")
    assert [f.problem for f in check({name: text.encode()}, source)] == []
    assert [f.problem for f in check({name: broken.encode()}, source)] == [
        "vllm.v1.core.kv_cache_utils has no 'init_no_hash'"
    ]


def test_files_of_a_release_are_two() -> None:
    assert sorted(Path(name).name for name in speculators_files("0.3.0")) == [
        "custom_worker.py",
        "vllm_hidden_states_generator.py",
    ]

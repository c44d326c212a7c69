"""Facts from source: of small packages made here, and of real releases of vLLM."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from patcher.errors import RuleError, TargetError
from patcher.facts import Facts, SourceFacts
from tests.releases import speculators_folder, vllm_tree


def facts_of(folder: Path, **modules: str) -> SourceFacts:
    """Facts of a package ``p``: module ``a__b`` is the file p/a/b.py, ``init`` is p/__init__.py."""
    root = folder / "p"
    for name, source in {"init": "", **modules}.items():
        path = root / ("__init__.py" if name == "init" else name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in [p for p in path.relative_to(root).parents if p != Path()]:
            (root / parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    return SourceFacts({"p": root})


def place(facts: Facts, dotted: str) -> tuple[str, str, str] | None:
    found = facts.symbol(dotted)
    return (found.kind, found.dotted, str(found)) if found else None


def call(facts: Facts, dotted: str) -> str:
    return str(facts.signature(dotted))


# Names


def test_a_name_is_found_where_it_is_defined_behind_re_exports_and_aliases(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        init="from .a import f as g\nfrom p.b import *\n",
        a="\ndef f(): ...\n",
        b="from p.a import f\nh = f\n",
    )
    assert place(facts, "p.g") == ("function", "p.a.f", "p/a.py:2")
    assert place(facts, "p.f") == place(facts, "p.h") == place(facts, "p.g")
    assert place(facts, "p.a") == ("module", "p.a", "p/a.py:1")
    assert place(facts, "p.a.g") is None
    assert place(facts, "p.nothing.f") is None


def test_star_imports_obey_all_and_leave_private_names(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path, init="from .a import *\nfrom .b import *\n", a="__all__ = ['x']\nx = 1\ny = 2\n", b="_z = 3\nw = 4\n"
    )
    assert facts.has_symbol("p.x")
    assert facts.has_symbol("p.w")
    assert not facts.has_symbol("p.y")
    assert not facts.has_symbol("p._z")


def test_names_of_lazy_modules_come_from_their_tables(tmp_path: Path) -> None:
    lazy = """
        import typing
        MODULE_ATTRS = {"F": ".a:f", "G": "p.a"}
        KNOBS = {"KNOB": lambda: 1}
        if typing.TYPE_CHECKING:
            from p.a import K
        else:
            def __getattr__(name):
                if name == "special":
                    return 1
                return look_up(name)
        """
    facts = facts_of(tmp_path, init=lazy, a="def f(): ...\ndef G(x): ...\nclass K: ...\n")
    assert place(facts, "p.F") == ("function", "p.a.f", "p/a.py:1")
    assert call(facts, "p.G") == "(x)"
    assert place(facts, "p.KNOB") == ("attribute", "p.KNOB", "p/__init__.py:4")
    assert facts.has_symbol("p.special")
    assert place(facts, "p.K") == ("class", "p.a.K", "p/a.py:3")
    assert not facts.has_symbol("p.Nope")
    assert facts.closure("p") == "lazy"


def test_a_name_for_type_checkers_only_is_not_there(tmp_path: Path) -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import f\nelse:\n    g = 1\n"
    facts = facts_of(tmp_path, init=source, a="def f(): ...")
    assert not facts.has_symbol("p.f")
    assert facts.has_symbol("p.g")


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from .gone import f\nexcept ImportError:\n    from .a import f\n",
        "import sys\nif sys.version_info > (3, 99):\n    from .gone import f\nelse:\n    from .a import f\n",
        "f = None\nif 1:\n    from .a import f\n",
    ],
)
def test_conditional_imports_give_the_one_that_resolves(tmp_path: Path, source: str) -> None:
    facts = facts_of(tmp_path, init=source, a="def f(): ...")
    assert place(facts, "p.f") == ("function", "p.a.f", "p/a.py:1")


def test_the_last_definition_counts_and_overloads_do_not(tmp_path: Path) -> None:
    source = """
        from typing import overload
        @overload
        def f(x: int): ...
        def f(x, y=1): ...
        def g(a): ...
        g = trick(g)
        """
    facts = facts_of(tmp_path, init=source)
    assert call(facts, "p.f") == "(x, y=1)"
    assert place(facts, "p.g") == ("attribute", "p.g", "p/__init__.py:7")
    assert facts.signature("p.g") is None


def test_module_variables_are_attributes_also_those_that_a_function_sets(tmp_path: Path) -> None:
    source = "NONE_HASH: bytes\na, (b, *c) = f()\ndef init():\n    global late\n    late = 1\nfor i in x: ...\n"
    facts = facts_of(tmp_path, init=source)
    for name in ("NONE_HASH", "a", "b", "c", "late", "i"):
        assert place(facts, f"p.{name}") is not None, name
    assert place(facts, "p.d") is None


def test_members_of_classes_come_by_the_order_of_bases(tmp_path: Path) -> None:
    source = """
        import abc
        class Root:
            def m(self, root): ...
            def only_root(self): ...
        class Left(Root): ...
        class Right(Root):
            def m(self, right): ...
            alias = m
            @property
            def size(self) -> int: ...
            @staticmethod
            def st(x): ...
            @classmethod
            def cl(cls, y): ...
            def set_up(self, q):
                self.late, self.other = q
        class C(Left, Right, abc.ABC):
            flag = True
        """
    facts = facts_of(tmp_path, init=source)
    assert place(facts, "p.C.m") == ("method", "p.Right.m", "p/__init__.py:8")
    assert call(facts, "p.C.m") == call(facts, "p.C.alias") == "(right)"
    assert facts.symbol("p.C.only_root")
    assert [call(facts, f"p.C.{name}") for name in ("st", "cl", "size")] == ["(x)", "(y)", "None"]
    kinds = [d.kind if (d := facts.symbol(f"p.C.{n}")) else None for n in ("st", "cl", "size", "flag", "late", "other")]
    assert kinds == ["staticmethod", "classmethod", "attribute", "attribute", "attribute", "attribute"]
    assert facts.symbol("p.C.nothing") is None
    assert facts.closure("p.C") == "abstract"
    assert facts.closure("p.Right") == "closed"


# Signatures


def test_signatures_of_functions_have_every_kind_of_parameter(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, init="def f(a, /, b, c=1, *args, d, e='x', **kw): ...\ndef g(*, k=None): ...\n")
    assert call(facts, "p.f") == "(a, /, b, c=1, *args, d, e='x', **kw)"
    assert call(facts, "p.g") == "(*, k=None)"


def test_constructors_of_plain_classes_are_own_or_inherited(tmp_path: Path) -> None:
    source = """
        from elsewhere import Base, meta
        class A:
            def __init__(self, x, y=2): ...
        class B(A): ...
        class N:
            def __new__(cls, n): ...
        class Empty: ...
        class Unknown(Base): ...
        class Meta(metaclass=meta): ...
        class Own(Base):
            def __init__(self, z): ...
        """
    facts = facts_of(tmp_path, init=source)
    assert call(facts, "p.B") == call(facts, "p.B.__init__") == "(x, y=2)"
    assert call(facts, "p.N") == "(n)"
    assert call(facts, "p.Empty") == "()"
    assert call(facts, "p.Own") == "(z)"
    assert [call(facts, f"p.{name}") for name in ("Unknown", "Meta")] == ["(...)", "(...)"]
    assert facts.closure("p.Unknown") == "open"


def test_constructors_of_dataclasses_follow_their_fields(tmp_path: Path) -> None:
    source = """
        from dataclasses import dataclass, field, InitVar, KW_ONLY
        from typing import ClassVar
        @dataclass
        class A:
            a: int
            b: list = field(default_factory=list)
            hidden: int = field(init=False)
            shared: ClassVar[int] = 3
            init: InitVar[int] = 0
        @dataclass
        class B(A):
            b: int = 7
            _: KW_ONLY
            c: str
            d: str = field(default="x", kw_only=True)
        class Heir(B): ...
        @dataclass
        class Own:
            a: int
            def __init__(self, z): ...
        """
    facts = facts_of(tmp_path, init=source)
    assert call(facts, "p.A") == "(a, b=list(), init=0)"
    assert call(facts, "p.B") == call(facts, "p.Heir") == "(a, b=7, init=0, *, c, d='x')"
    assert call(facts, "p.Own") == "(z)"
    assert facts.symbol("p.A.shared")


def test_pydantic_dataclasses_drop_unknown_keywords_unless_told_not_to(tmp_path: Path) -> None:
    source = """
        from dataclasses import field
        import pydantic.dataclasses
        from pydantic import ConfigDict, Field
        from pydantic.dataclasses import dataclass
        def config(cls=None, *, config=None):
            merged = ConfigDict(extra="forbid")
            def decorator(cls):
                return dataclass(cls, config=merged)
            return decorator if cls is None else decorator(cls)
        def plain(cls):
            return cls
        @plain
        @dataclass(config=ConfigDict(arbitrary_types_allowed=True))
        class Loose:
            a: int = Field(default=1, ge=0)
            b: int = Field(...)
            c: list = Field(default_factory=lambda: [1])
        @config
        class Strict:
            a: int
            b: int = field(default=None, init=False)
        @config(config=ConfigDict())
        class Called(Strict):
            c: int = Field(2)
        @pydantic.dataclasses.dataclass
        class Aliased:
            a: int = Field(alias="b")
        """
    facts = facts_of(tmp_path, init=source)
    assert call(facts, "p.Loose") == "(a=1, b, c=[1])"
    assert call(facts, "p.Strict") == "(a)"
    assert call(facts, "p.Called") == "(a, c=2)"
    signatures = {name: facts.signature(f"p.{name}") for name in ("Loose", "Strict", "Called", "Aliased")}
    assert [s.drops_unknown if s else None for s in signatures.values()] == [True, False, False, True]
    assert [s.open if s else None for s in signatures.values()] == [False, False, False, True]


def test_constructors_of_structs_named_tuples_and_enums(tmp_path: Path) -> None:
    source = """
        import enum, msgspec
        from typing import NamedTuple
        class S(msgspec.Struct, omit_defaults=True):
            a: int
            b: int = msgspec.field(default_factory=dict)
        class T(S, kw_only=True):
            c: int = 1
        class N(NamedTuple):
            x: int
            y: int = 0
        class E(enum.IntEnum):
            ONE = 1
        """
    facts = facts_of(tmp_path, init=source)
    assert [call(facts, f"p.{n}") for n in "STNE"] == ["(a, b=dict())", "(a, b=dict(), *, c=1)", "(x, y=0)", "(value)"]
    assert facts.symbol("p.E.ONE")
    assert facts.symbol("p.E.TWO") is None


def test_decorators_that_keep_the_signature_are_seen_through(tmp_path: Path) -> None:
    source = """
        import functools
        from elsewhere import mystery
        def wrapping(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return function(*args, **kwargs)
            return inner
        def marking(text):
            def mark(function):
                function.mark = text
                return function
            return mark
        def replacing(function):
            def other(a, b, c): ...
            return other
        @wrapping
        def f(x): ...
        @marking("m")
        def g(x): ...
        @functools.lru_cache(maxsize=1)
        def h(x): ...
        @replacing
        def i(x): ...
        @mystery
        def j(x): ...
        """
    facts = facts_of(tmp_path, init=source)
    assert [call(facts, f"p.{name}") for name in "fgh"] == ["(x)"] * 3
    assert [call(facts, f"p.{name}") for name in "ij"] == ["(x, ...)"] * 2


# Types


def test_types_of_attributes_and_results(tmp_path: Path) -> None:
    source = """
        from __future__ import annotations
        from typing import Optional, TYPE_CHECKING, Self
        from contextlib import contextmanager
        if TYPE_CHECKING:
            from p.a import K
        class C:
            one: K
            two: "Optional[K]" = None
            many: list[K]
            def __init__(self, k: K | None, n: int):
                self.k = k
                self.n = n
                self.made = Other()
            def me(self) -> Self: ...
        class Other: ...
        def f() -> K: ...
        def g() -> list[K]: ...
        @contextmanager
        def h() -> K: ...
        """
    facts = facts_of(tmp_path, init=source, a="class K: ...\n")
    assert [facts.type_of(f"p.C.{name}") for name in ("one", "two", "k")] == ["p.a.K"] * 3
    assert [facts.type_of(f"p.C.{name}") for name in ("many", "n", "absent")] == [None] * 3
    assert (facts.type_of("p.C.made"), facts.type_of("p.C.me")) == ("p.Other", "p.C")
    assert [facts.type_of(f"p.{name}") for name in "fgh"] == ["p.a.K", None, None]


# Probes


def test_probes_of_parameters(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path, init="class C:\n    def __init__(self, a, b=True, c = 'x'): ...\n    def m(self, d): ...\n"
    )
    assert facts.has_parameter("p.C.__init__(a)")
    assert facts.has_parameter("p.C(a)")
    assert facts.has_parameter("p.C.m(d)")
    assert not facts.has_parameter("p.C.__init__(self)")
    assert not facts.has_parameter("p.C.gone(d)")
    assert facts.is_required("p.C(a)")
    assert not facts.is_required("p.C(b)")
    assert not facts.is_required("p.C(absent)")
    assert facts.default_is("p.C(b)", "True")
    assert facts.default_is("p.C(c)", '"x"')
    assert not facts.default_is("p.C(b)", "None")
    assert not facts.default_is("p.C(a)", "None")


def test_a_probe_that_does_not_read_is_a_fault_of_the_rule(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, init="def f(x=1): ...")
    with pytest.raises(RuleError):
        facts.has_parameter("p.f")
    with pytest.raises(RuleError):
        facts.default_is("p.f(x)", "1 +")


def test_a_parameter_of_an_unreadable_signature_is_not_denied(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, init="from elsewhere import mystery\n@mystery\ndef f(x): ...\n")
    assert facts.has_parameter("p.f(x)")
    with pytest.raises(TargetError, match="can't be read from source"):
        facts.has_parameter("p.f(y)")


def test_shapes_are_looked_for_in_the_definition_only(tmp_path: Path) -> None:
    source = """
        class C:
            def m(self):
                text = '''
        <margin>'''
                return replies[0]
            def n(self):
                return replies
        """
    facts = facts_of(tmp_path, init=source, a="def f():\n    return 1\n")
    assert facts.has_shape("p.C.m", "return $X[0]")
    assert not facts.has_shape("p.C.n", "return $X[0]")
    assert facts.has_shape("p.C", "return $X[0]")
    assert facts.has_shape("p.a", "return 1")
    assert not facts.has_shape("p.a", "return 2")
    assert not facts.has_shape("p.a.gone", "return 1")


def test_line_ends_and_encodings_are_read_as_python_reads_them(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    source = "# -*- coding: latin-1 -*-\r\ntext = '\xe9\\d'\r\n\x0cdef f():\r\n    return text\r\n"
    (tmp_path / "p" / "latin.py").write_bytes(source.encode("latin-1"))
    assert place(facts, "p.latin.f") == ("function", "p.latin.f", "p/latin.py:3")
    assert facts.has_shape("p.latin.f", "return text")
    assert facts.has_shape("p.latin", "text = $X")
    assert not facts.has_shape("p.latin.f", "text = $X")


# Refusals


def test_an_unknown_package_is_refused(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, init="import json\n")
    assert facts.symbol("p.json") is not None
    with pytest.raises(TargetError, match=r"json.loads belongs to no package"):
        facts.symbol("json.loads")


def test_a_file_that_does_not_parse_is_named_with_its_line(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, good="x = 1\n", bad="x = 1\ndef f(:\n")
    assert facts.has_symbol("p.good.x")
    with pytest.raises(TargetError) as caught:
        facts.symbol("p.bad.f")
    assert caught.value.where == f"{tmp_path / 'p' / 'bad.py'}:2"


def test_only_the_modules_on_the_way_are_read(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path, init="", a="from p.b import f\nfrom p.broken import g\n", b="def f(): ...", broken="def ("
    )
    assert facts.has_symbol("p.a.f")
    with pytest.raises(TargetError):
        facts.symbol("p.a.g")


# Real releases


@pytest.fixture(scope="module", params=["0.11.0", "0.16.0", "0.32.0"])
def release(request: pytest.FixtureRequest) -> tuple[str, SourceFacts]:
    return request.param, SourceFacts({"vllm": vllm_tree(request.param) / "vllm"})


REAL = {
    "0.11.0": {
        "config": "vllm.config.VllmConfig",
        "required": [],
        "scheduler": "(vllm_config, kv_cache_config, structured_output_manager, mm_registry=MULTIMODAL_REGISTRY, "
        "include_finished_set=False, log_stats=False)",
        "groups": "(vllm_config, kv_cache_groups, kv_cache_specs, available_memory)",
        "caching": "None",
        "hashing": False,
        "sampling": "vllm.sampling_params.SamplingParams",
    },
    "0.16.0": {
        "config": "vllm.config.vllm.VllmConfig",
        "required": ["max_model_len", "is_encoder_decoder"],
        "scheduler": "(vllm_config, kv_cache_config, structured_output_manager, block_size, "
        "mm_registry=MULTIMODAL_REGISTRY, include_finished_set=False, log_stats=False)",
        "groups": "(vllm_config, kv_cache_groups, available_memory)",
        "caching": "True",
        "hashing": True,
        "sampling": "vllm.sampling_params.SamplingParams",
    },
    "0.32.0": {
        "config": "vllm.config.vllm.VllmConfig",
        "required": ["max_model_len", "is_encoder_decoder"],
        "scheduler": "(vllm_config, kv_cache_config, structured_output_manager, block_size, hash_block_size=None, "
        "mm_registry=MULTIMODAL_REGISTRY, include_finished_set=False, log_stats=False)",
        "groups": "(vllm_config, kv_cache_groups, available_memory)",
        "caching": "True",
        "hashing": True,
        "sampling": "vllm.sampling_params.SamplingParams",
    },
}


def test_what_is_known_of_real_releases(release: tuple[str, SourceFacts]) -> None:
    version, facts = release
    config = facts.signature("vllm.config.SchedulerConfig")
    assert config is not None
    got = {
        "config": facts.type_of("vllm.v1.core.sched.scheduler.Scheduler.vllm_config"),
        "required": [p.name for p in config.parameters if p.required],
        "scheduler": call(facts, "vllm.v1.core.sched.scheduler.Scheduler"),
        "groups": call(facts, "vllm.v1.core.kv_cache_utils.get_kv_cache_config_from_groups"),
        "caching": next(v for v in ("True", "False", "None") if facts.default_is(CACHING, v)),
        "hashing": facts.has_symbol("vllm.utils.hashing.get_hash_fn_by_name"),
        "sampling": d.dotted if (d := facts.symbol("vllm.SamplingParams")) else None,
    }
    assert got == REAL[version]


CACHING = "vllm.config.CacheConfig.__init__(enable_prefix_caching)"


def test_fields_that_are_not_arguments_are_attributes_all_the_same(release: tuple[str, SourceFacts]) -> None:
    _, facts = release
    assert not facts.has_parameter("vllm.config.CacheConfig(num_gpu_blocks)")
    assert facts.has_parameter("vllm.config.CacheConfig(block_size)")
    assert facts.has_symbol("vllm.config.CacheConfig.num_gpu_blocks")


def test_several_packages_are_read_side_by_side() -> None:
    vllm, speculators = vllm_tree("0.16.0") / "vllm", speculators_folder("0.4.0.1") / "speculators"
    facts = SourceFacts({"vllm": vllm, "speculators": speculators})
    assert facts.has_symbol("speculators.utils.util.mem_get_info")
    assert not facts.has_symbol("speculators.utils.util.gone")
    assert facts.has_symbol("vllm.v1.request.Request")

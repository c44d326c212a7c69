from __future__ import annotations

import pytest

from tests.helpers import check_drifted, check_noop, check_transformed, importing, replacing

ADD = importing(add=["vllm.b.m"])


@pytest.mark.parametrize(
    "source",
    [
        "from vllm.b import m\n",
        "from vllm.b import m as n\n",
        "from vllm.elsewhere import m\n",
        "from vllm.b import (\n    a,\n    m,\n)\n",
        "try:\n    from vllm.b import m\nexcept ImportError:\n    m = None\n",
    ],
)
def test_a_name_that_the_module_imports_is_not_added(source: str) -> None:
    check_noop(source, ADD)


FITS = "a" * (88 - len("from vllm.b import , m"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"from vllm.b import {FITS}\n", f"from vllm.b import {FITS}, m\n"),
        (f"from vllm.b import {FITS}a\n", f"from vllm.b import (\n    {FITS}a,\n    m,\n)\n"),
        (
            f"from vllm.b import {FITS} as z  # z\r\n",
            f"from vllm.b import (\r\n    {FITS} as z,\r\n    m,\r\n)  # z\r\n",
        ),
        (f"from vllm.b import {FITS}a; x = 1\n", f"from vllm.b import (\n    {FITS}a,\n    m,\n); x = 1\n"),
        (f"from vllm.b import ({FITS}a)\n", f"from vllm.b import ({FITS}a, m)\n"),
    ],
)
def test_an_import_that_gets_too_long_becomes_one_line_a_name(source: str, expected: str) -> None:
    check_transformed(source, expected, ADD)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n", "from vllm.b import m\nx = 1\n"),
        ('"""Doc."""\n\nx = 1\n', '"""Doc."""\nfrom vllm.b import m\n\nx = 1\n'),
        ("from vllm.b import k\n", "from vllm.b import k, m\n"),
        ("from vllm.b import z\n", "from vllm.b import m, z\n"),
        ("from vllm.b import a, z  # why\n", "from vllm.b import a, m, z  # why\n"),
        ("from vllm.b import (a, z)\n", "from vllm.b import (a, m, z)\n"),
        ("from vllm.b import (\n    a,\n    z,\n)\n", "from vllm.b import (\n    a,\n    m,\n    z,\n)\n"),
        ("from vllm.b import (\n    a,  # a\n)\n", "from vllm.b import (\n    a,  # a\n    m,\n)\n"),
        ("from vllm.b import (\n    a  # a\n)\n", "from vllm.b import (\n    a,  # a\n    m\n)\n"),
        (
            "from vllm.b import (\n    # of z\n    z,  # z\n)\n",
            "from vllm.b import (\n    # of z\n    m,\n    z,  # z\n)\n",
        ),
        ("from vllm.b import a, \\\n    c\n", "from vllm.b import a, \\\n    c, m\n"),
        ("import vllm.b\n", "import vllm.b\nfrom vllm.b import m\n"),
        (
            "from vllm.a import x\nfrom vllm.c import y\n",
            "from vllm.a import x\nfrom vllm.b import m\nfrom vllm.c import y\n",
        ),
        ("import os\n\nfrom vllm.c import y\n", "import os\n\nfrom vllm.b import m\nfrom vllm.c import y\n"),
        ("import os\n\nfrom .c import y\n", "import os\n\nfrom vllm.b import m\n\nfrom .c import y\n"),
        ("import os\n\nx = 1\n", "import os\n\nfrom vllm.b import m\n\nx = 1\n"),
        (
            "import os\n# of c\nfrom vllm.c import y\n",
            "import os\n\nfrom vllm.b import m\n# of c\nfrom vllm.c import y\n",
        ),
        ("# top\n\nfrom vllm.c import y\n", "# top\n\nfrom vllm.b import m\nfrom vllm.c import y\n"),
        ("from __future__ import annotations\n", "from __future__ import annotations\n\nfrom vllm.b import m\n"),
        ("def f():\n    from vllm.b import m\n", "from vllm.b import m\ndef f():\n    from vllm.b import m\n"),
        ("def f():\n    from vllm.b import a\n", "from vllm.b import m\ndef f():\n    from vllm.b import a\n"),
        (
            "if TYPE_CHECKING:\n    from vllm.b import m\n",
            "from vllm.b import m\nif TYPE_CHECKING:\n    from vllm.b import m\n",
        ),
        ("from vllm.b import *\n", "from vllm.b import *\nfrom vllm.b import m\n"),
        ("import os\r\n", "import os\r\n\r\nfrom vllm.b import m\r\n"),
        ("import os", "import os\n\nfrom vllm.b import m"),
    ],
)
def test_an_added_name_is_sorted_in(source: str, expected: str) -> None:
    check_transformed(source, expected, ADD)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\n", "import os\n\nimport torch\n"),
        ("import abc\nimport sys\n", "import abc\nimport os\nimport sys\n"),
        ("from abc import ABC\n", "import os\nfrom abc import ABC\n"),
        ("import os.path as p\n", "import os\nimport os.path as p\n"),
    ],
)
def test_an_added_module(source: str, expected: str) -> None:
    check_transformed(source, expected, importing(add=["os"]))


def test_code_between_imports_stays_where_it_is() -> None:
    source = "import os\n\nos.putenv('a', 'b')\n\nimport torch\n"
    expected = source.replace("import os\n", "import os\nfrom traceback import print_exc\n")
    check_transformed(source, expected, importing(add=["traceback.print_exc"]))


def test_an_imported_module_is_not_added() -> None:
    check_noop("import os\n", importing(add=["os"]))
    check_noop("import os.path\n", importing(add=["os"]))


@pytest.mark.parametrize(
    "source", ["from other import m\n", "import m\n", "def m(): ...\n", "class m: ...\n", "from .b import m\n"]
)
def test_a_name_that_is_something_else_is_drifted(source: str) -> None:
    assert "something else" in check_drifted(source, ADD)


def test_the_order_of_additions_does_not_show() -> None:
    names = ["vllm.b.m", "vllm.a.k", "os", "vllm.b.c", "speculators.x.y"]
    expected = (
        "import os\n\nfrom vllm.a import k\nfrom vllm.b import a, c, m\n\n"
        "from speculators.x import y\n\nfrom .z import w\n"
    )
    for order in (names, names[::-1], sorted(names)):
        check_transformed("from vllm.b import a\n\nfrom .z import w\n", expected, importing(add=order))


REMOVE = importing(remove=["vllm.b.m"])


@pytest.mark.parametrize(
    "source",
    [
        "from vllm.b import a\n",
        "from vllm.b import m\nm()\n",
        "from vllm.b import m as n\nf(n)\n",
        "from vllm.b import m\n__all__ = ['m']\n",
        "from vllm.b import m\n\ndef f(x: 'm'): ...\n",
        "from vllm.c import m\n",
    ],
)
def test_a_name_that_is_in_use_or_another_is_not_removed(source: str) -> None:
    check_noop(source, REMOVE)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from vllm.b import m\nx = 1\n", "x = 1\n"),
        ("from vllm.b import m as n\nm(n=1)\nx.n\n", "m(n=1)\nx.n\n"),
        ("from vllm.b import a, m\na\n", "from vllm.b import a\na\n"),
        ("from vllm.b import m, z\nz\n", "from vllm.b import z\nz\n"),
        ("from vllm.b import (\n    a,  # a\n    m,  # m\n)\n", "from vllm.b import (\n    a,  # a\n)\n"),
        ("from vllm.b import (\n    a,  # a\n    m  # m\n)\n", "from vllm.b import (\n    a  # a\n)\n"),
        (
            "from vllm.b import (\n    m,\n    # of z\n    z,  # z\n)\n",
            "from vllm.b import (\n    # of z\n    z,  # z\n)\n",
        ),
        ("# of m\nfrom vllm.b import m\nx = 1\n", "# of m\nx = 1\n"),
        ("import os\n\n# of m\nfrom vllm.b import m\nx = 1\n", "import os\n\n# of m\nx = 1\n"),
        ("import os\n\nfrom vllm.b import m\n\nx = 1\n", "import os\n\nx = 1\n"),
        ("import os; from vllm.b import m\nx = 1\n", "import os\nx = 1\n"),
        (
            "try:\n    from vllm.b import m\nexcept ImportError:\n    raise\n",
            "try:\n    pass\nexcept ImportError:\n    raise\n",
        ),
        ("try: from vllm.b import m\nexcept ImportError: raise\n", "try: pass\nexcept ImportError: raise\n"),
    ],
)
def test_a_name_that_nothing_uses_is_removed(source: str, expected: str) -> None:
    check_transformed(source, expected, REMOVE)


def test_a_module_is_removed_unless_it_is_in_use() -> None:
    rule = importing(remove=["torch.cuda"])
    check_transformed("import torch.cuda\nx = 1\n", "x = 1\n", rule)
    check_noop("import torch.cuda\ntorch.x\n", rule)
    check_noop("import torch.cuda as t\n", rule)


def test_an_edit_leaves_an_import_unused() -> None:
    rule = replacing("m($X)", "n($X)", imports=[{"remove": ["vllm.b.m"]}])
    check_transformed("from vllm.b import m\nm(1)\n", "n(1)\n", rule)


MOVE = importing(move={"vllm.b.m": "vllm.c.m"})


@pytest.mark.parametrize(
    "source", ["from vllm.c import m\nm()\n", "from other import m\n", "x = 1\n", "import vllm.b\n"]
)
def test_what_is_not_imported_from_the_old_module_is_not_moved(source: str) -> None:
    check_noop(source, MOVE)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from vllm.b import m\nm()\n", "from vllm.c import m\nm()\n"),
        ("from vllm.b import a, m\n", "from vllm.b import a\nfrom vllm.c import m\n"),
        ("from vllm.b import m\nfrom vllm.c import k\n", "from vllm.c import k, m\n"),
        ("from vllm.b import m as n\nn()\n", "from vllm.c import m as n\nn()\n"),
        ("from vllm.b import m\nfrom vllm.c import m\n", "from vllm.c import m\n"),
        ("from vllm.b import m, m as n\n", "from vllm.c import m\nfrom vllm.c import m as n\n"),
    ],
)
def test_a_moved_name_keeps_its_local_name(source: str, expected: str) -> None:
    check_transformed(source, expected, MOVE)


def test_a_name_that_is_renamed_keeps_its_local_name() -> None:
    rule = importing(move={"vllm.b.m": "vllm.c.k"})
    check_transformed("from vllm.b import m\nm()\n", "from vllm.c import k as m\nm()\n", rule)


def test_a_name_reached_through_its_module_is_drifted() -> None:
    report = check_drifted("import vllm.b as q\nq.m()\n", MOVE)
    assert "used by its module's name" in report
    check_drifted("import vllm.b\nvllm.b.m()\n", MOVE)
    check_noop("import vllm.c as q\nq.m()\n", MOVE)

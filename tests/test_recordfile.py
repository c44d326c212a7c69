from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from patcher import recordfile

RECORD = b'"a,b.py",sha256=AAAA,3\r\npkg/x.py,sha256=BBBB,10\r\npkg/__pycache__/x.pyc,,\r\nRECORD,,\r\n'

paths = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1)
endings = st.sampled_from([b"\n", b"\r\n"])


def test_rows_are_read_with_quotes_and_without_empty_hashes() -> None:
    assert recordfile.hashes(RECORD) == {"a,b.py": "sha256=AAAA", "pkg/x.py": "sha256=BBBB"}


def test_a_hash_is_spelled_as_pip_spells_it() -> None:
    assert recordfile.row_hash(b"") == "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


def test_only_the_named_rows_change() -> None:
    changed = recordfile.with_rows(RECORD, {"pkg/x.py": b"", "pkg/absent.py": b"", "info/new": b"n"}, add=["info/new"])
    expected = RECORD.replace(b"sha256=BBBB,10", b"sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0")
    assert changed.startswith(expected)
    assert changed[len(expected) :].startswith(b"info/new,sha256=")
    assert changed.endswith(b",1\r\n")
    assert b"absent" not in changed


def test_rows_of_others_survive_taking_ours_back() -> None:
    changed = recordfile.with_rows(RECORD, {"pkg/x.py": b"", "info/new": b"n"}, add=["info/new"])
    foreign = changed.replace(b"RECORD,,", b"pkg/foreign.py,,\r\nRECORD,,")
    back = recordfile.without_rows(foreign, RECORD, {"pkg/x.py", "info/new"})
    assert back == RECORD.replace(b"RECORD,,", b"pkg/foreign.py,,\r\nRECORD,,")


@given(st.lists(paths, unique=True, min_size=1), st.data(), endings, st.binary())
def test_setting_rows_and_taking_them_back_gives_every_byte(
    names: list[str], data: st.DataObject, ending: bytes, content: bytes
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator=ending.decode()).writerows([name, recordfile.row_hash(b"old"), 3] for name in names)
    record = text.getvalue().encode()
    ours = data.draw(st.sets(st.sampled_from(names))) | {"speculators-patch/record.json"}
    changed = recordfile.with_rows(record, dict.fromkeys(ours, content), add=ours)
    assert {name: recordfile.hashes(changed)[name] for name in ours} == dict.fromkeys(
        ours, recordfile.row_hash(content)
    )
    assert recordfile.without_rows(changed, record, ours) == record

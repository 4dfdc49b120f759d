"""A journal that was damaged, by accident or on purpose, is refused with a sentence and leads to no harm."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes.apply import Refused, apply, history, recover, undo


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"old\n")
    apply(
        [ReplaceFile(tmp_path / "a.py", b"old\n", b"new\n")], tmp_path / "home", fix="repair", code="VLLM101"
    )
    return tmp_path


def entry_of(root: Path) -> Path:
    return root / "home/0001-applied/entry.json"


def every_use(root: Path) -> list[Callable[[], object]]:
    home = root / "home"
    return [
        lambda: history(home),
        lambda: undo(home),
        lambda: undo(home, everything=True),
        lambda: recover(home),
        lambda: apply([NewFile(root / "b.py", b"")], home, fix="f", code="C"),
    ]


def test_journal_entry_is_readable_json(root: Path) -> None:
    document = json.loads(entry_of(root).read_text())
    assert document["schema_version"] == 2
    assert (document["fix"], document["code"]) == ("repair", "VLLM101")
    (change,) = document["changes"]
    assert change["kind"] == "replace_file"
    assert change["path"] == str(root / "a.py")
    assert change["mode"] == "0644"
    assert len(change["before"]) == len(change["after"]) == 64
    assert (root / "home/0001-applied/0.before").read_bytes() == b"old\n"


DAMAGES: dict[str, bytes | str] = {
    "empty": b"",
    "truncated": b'{"schema_version": 1, "changes": [{"kind"',
    "no UTF-8": b'{"schema_version": "\xff"}',
    "another version": '{"schema_version": 3}',
    "a list": "[]",
    "null": "null",
    "a number": "7",
    "deep": "[" * 100_000,
    "a huge number": '{"schema_version": ' + "9" * 10_000 + "}",
    "no changes": '{"schema_version": 1}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_refused(root: Path, damage: str) -> None:
    content = DAMAGES[damage]
    entry_of(root).write_bytes(content if isinstance(content, bytes) else content.encode())
    for use in every_use(root):
        with pytest.raises(Refused, match=r"entry\.json"):
            use()
    assert (root / "a.py").read_bytes() == b"new\n"


CHANGED: dict[str, Any] = {
    "kind": "format_disk",
    "path": "relative",
    "file": "/with\0nul",
    "before": 7,
    "after": None,
    "mode": "0999",
    "uid": "root",
    "folders": "/etc",
}


OUT_OF_RANGE: dict[str, Any] = {
    "mode": "100644",
    "uid": -1,
    "gid": 2**32,
    "atime": 10**60,
    "mtime": -(10**60),
}


@pytest.mark.parametrize("field", OUT_OF_RANGE)
def test_number_out_of_range_is_refused(root: Path, field: str) -> None:
    document = json.loads(entry_of(root).read_text())
    document["changes"][0][field] = OUT_OF_RANGE[field]
    entry_of(root).write_text(json.dumps(document))
    for use in every_use(root):
        with pytest.raises(Refused, match=r"entry\.json is invalid"):
            use()


@pytest.mark.parametrize("field", ["atime", "mtime"])
def test_folder_with_a_time_out_of_range_is_refused(root: Path, field: str) -> None:
    document = json.loads(entry_of(root).read_text())
    document["around"][0][field] = 10**60
    entry_of(root).write_text(json.dumps(document))
    with pytest.raises(Refused, match=r"entry\.json is invalid"):
        history(root / "home")


@pytest.mark.parametrize("field", CHANGED)
def test_field_of_the_wrong_type_is_refused(root: Path, field: str) -> None:
    document = json.loads(entry_of(root).read_text())
    document["changes"][0][field] = CHANGED[field]
    entry_of(root).write_text(json.dumps(document))
    with pytest.raises(Refused, match=r"entry\.json is invalid"):
        history(root / "home")


@pytest.mark.parametrize("field", ["time", "fix", "code", "token", "changes"])
@pytest.mark.parametrize("value", [None, 3, ["x"], {"a": 1}, "../../x"])
def test_header_of_the_wrong_type_is_refused(root: Path, field: str, value: object) -> None:
    if isinstance(value, str) and field in {"time", "fix", "code"}:
        return
    document = json.loads(entry_of(root).read_text())
    document[field] = value
    entry_of(root).write_text(json.dumps(document))
    with pytest.raises(Refused, match=r"entry\.json is invalid"):
        history(root / "home")


@pytest.mark.parametrize("kind", ["missing", "folder", "link", "pipe"])
def test_entry_that_is_not_a_regular_file_is_refused(root: Path, kind: str) -> None:
    entry = entry_of(root)
    entry.rename(root / "elsewhere")
    match kind:
        case "folder":
            entry.mkdir()
        case "link":
            entry.symlink_to(root / "elsewhere")
        case "pipe":
            os.mkfifo(entry)
    with pytest.raises(Refused, match=r"entry\.json"):
        history(root / "home")


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_missing_or_damaged_originals_are_not_restored(root: Path, damage: str) -> None:
    saved = root / "home/0001-applied/0.before"
    if damage == "missing":
        saved.unlink()
    else:
        saved.write_bytes(b"forged\n")
    with pytest.raises(Refused, match=f"0.before is {'missing' if damage == 'missing' else 'damaged'}"):
        undo(root / "home")
    assert (root / "a.py").read_bytes() == b"new\n"


def test_unrelated_files_in_the_journal_folder_are_ignored(root: Path) -> None:
    (root / "home/notes.txt").write_text("mine")
    (root / "home/0002-perhaps").mkdir()
    (root / "home/00-applied").mkdir()
    assert len(history(root / "home")) == 1
    undo(root / "home")
    assert (root / "home/notes.txt").read_text() == "mine"
    assert (root / "home/0002-perhaps").exists()


def test_journal_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(Refused, match="home"):
        apply([NewFile(tmp_path / "x", b"")], tmp_path / "home", fix="f", code="C")
    with pytest.raises(Refused):
        history(tmp_path / "home")


def test_entry_moved_elsewhere_is_forgotten(root: Path) -> None:
    entry_of(root).write_text("")
    shutil.move(root / "home/0001-applied", root / "elsewhere")
    assert history(root / "home") == ()
    assert apply([NewFile(root / "b.py", b"")], root / "home", fix="f", code="C") is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=cases(37), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_causes_a_traceback(root: Path, data: st.DataObject) -> None:
    document = json.loads((root / "pristine.json").read_text()) if (root / "pristine.json").exists() else None
    if document is None:
        shutil.copy(entry_of(root), root / "pristine.json")
        document = json.loads(entry_of(root).read_text())
    where = data.draw(st.sampled_from([document, document["changes"][0]]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(json_values)
    text = json.dumps(document)
    entry_of(root).write_text(
        text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text
    )
    for use in (history, recover):
        with contextlib.suppress(Refused):
            use(root / "home")

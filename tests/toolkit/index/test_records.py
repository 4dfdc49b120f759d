"""RECORD files, broken and whole, and the cache of hashes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.index.records import Hashes, Recorded, RecordFile, Seen, look

EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
EMPTY_HEX = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def info(tmp_path: Path) -> Path:
    folder = tmp_path / "x-1.dist-info"
    folder.mkdir()
    return folder


def paths(info: Path, text: str | bytes) -> list[str]:
    (info / "RECORD").write_bytes(text.encode() if isinstance(text, str) else text)
    return [entry.path for entry in RecordFile(info / "RECORD").files()]


def test_record_line_has_path_hash_and_size(info: Path) -> None:
    (info / "RECORD").write_text(f"x/a.py,{EMPTY},0\n")
    (entry,) = RecordFile(info / "RECORD").files()
    assert entry == Recorded("x/a.py", EMPTY.removeprefix("sha256="), 0)
    assert entry.sha256 == EMPTY_HEX


def test_path_with_a_comma_is_quoted(info: Path) -> None:
    assert paths(info, f'"x/a,b.py",{EMPTY},0\n') == ["x/a,b.py"]


def test_windows_line_endings_are_accepted(info: Path) -> None:
    assert paths(info, f"x/a.py,{EMPTY},0\r\nx/b.py,{EMPTY},0\r\n") == ["x/a.py", "x/b.py"]


def test_invalid_size_keeps_the_hash(info: Path) -> None:
    (info / "RECORD").write_text(f"x/a.py,{EMPTY},many\n")
    assert [entry.size for entry in RecordFile(info / "RECORD").files()] == [None]


@pytest.mark.parametrize(
    "line",
    [
        f"../../../bin/ray,{EMPTY},0",
        f"x/../../../etc/passwd,{EMPTY},0",
        f"/etc/passwd,{EMPTY},0",
        f"x/__pycache__/a.cpython-311.pyc,{EMPTY},0",
        f"x-1.dist-info/INSTALLER,{EMPTY},0",
        f"x-1.dist-info/direct_url.json,{EMPTY},0",
        "x-1.dist-info/RECORD,,",
        "x/a.py,,",
        "x/a.py,md5=abc,0",
        "x/a.py",
        f"x/a.py,{EMPTY}",
        f'"x/a.py,{EMPTY},0',
        f"x/\x1b[31ma.py,{EMPTY},0",
        "",
    ],
)
def test_entries_outside_the_wheel_content_are_skipped(info: Path, line: str) -> None:
    assert paths(info, line + "\n") == []


@pytest.mark.parametrize("digest", ["", "***", "abcd", "é" * 43, "A" * 1_000])
def test_invalid_digest_is_empty(digest: str) -> None:
    assert Recorded("x/a.py", digest, 0).sha256 == ""


def test_missing_record_has_no_lines(info: Path) -> None:
    assert list(RecordFile(info / "RECORD").files()) == []
    (info / "RECORD").mkdir()
    assert list(RecordFile(info / "RECORD").files()) == []


def test_record_that_is_a_pipe_does_not_block(info: Path) -> None:
    os.mkfifo(info / "RECORD")
    assert list(RecordFile(info / "RECORD").files()) == []


LINE = f"x/a.py,{EMPTY},0\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LINE, ""),
        (LINE + "x-1.dist-info/RECORD,,\n", ""),
        (f'"x/a,b.py",{EMPTY},0\r\n', ""),
        ("", "empty"),
        ("\n \n", "empty"),
        ("x/a.py,,\nx/b.py,,\n", "without any hash"),
        (LINE + "x/b.py,sha256=47DEQ", "damaged (1 of its 2 lines cannot be read)"),
        ("\x01\x02\n\x03", "damaged (2 of its 2 lines cannot be read)"),
    ],
)
def test_incomparable_record_has_a_reason(info: Path, text: str, problem: str) -> None:
    (info / "RECORD").write_text(text)
    assert RecordFile(info / "RECORD").problem() == problem


def test_missing_and_unreadable_records_are_distinguished(info: Path) -> None:
    assert RecordFile(info / "RECORD").problem() == "missing"
    (info / "RECORD").mkdir()
    assert RecordFile(info / "RECORD").problem() == "unreadable"


@settings(max_examples=cases(75), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=300) | st.text(alphabet='a/.,"=sh26-_\n\r\0é0', max_size=200).map(str.encode)
)
def test_arbitrary_records_are_read_safely(info: Path, content: bytes) -> None:
    found = paths(info, content)
    for path in found:
        assert not path.startswith("/")
        assert ".." not in path
    assert RecordFile(info / "RECORD").problem() or b"sha256=" in content.replace(b"\0", b"")


def seen(path: Path) -> Seen:
    found = look(str(path))
    assert found is not None
    return found


def test_only_regular_files_have_a_status(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [
        look(str(tmp_path)),
        look(str(tmp_path / "pipe")),
        look(str(tmp_path / "nothing")),
        look("\0"),
    ] == [None] * 4


def test_hash_is_cached_for_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"")
    first = Hashes(tmp_path / "cache")
    assert first.of([seen(file)]) == {str(file): EMPTY_HEX}
    first.save()
    (stored,) = json.loads((tmp_path / "cache" / "sha256.json").read_text()).values()
    assert stored == EMPTY_HEX
    assert Hashes(tmp_path / "cache").of([seen(file)]) == {str(file): EMPTY_HEX}


def test_edit_with_restored_mtime_is_hashed_again(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"one")
    hashes = Hashes(tmp_path / "cache")
    hashes.of([seen(file)])
    hashes.save()
    before = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Hashes(tmp_path / "cache").of([seen(file)])[str(file)] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\x00", b'{"a": 1}', b"[" * 100_000])
def test_damaged_cache_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sha256.json").write_bytes(content)
    file = tmp_path / "a.py"
    file.write_bytes(b"")
    hashes = Hashes(tmp_path)
    assert hashes.of([seen(file)]) == {str(file): EMPTY_HEX}
    hashes.save()


def test_unwritable_cache_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    file = tmp_path / "a.py"
    file.write_bytes(b"")
    hashes = Hashes(tmp_path / "cache")
    assert hashes.of([seen(file)]) == {str(file): EMPTY_HEX}
    hashes.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "cache"]


def test_vanished_file_has_no_hash(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"")
    there = seen(file)
    file.unlink()
    assert Hashes(tmp_path / "cache").of([there]) == {str(file): ""}

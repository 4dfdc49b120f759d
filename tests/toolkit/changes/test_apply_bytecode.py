"""Bytecode caches: written where they are missing, and only those removed again."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import signal
import sys
import time
from pathlib import Path

import pytest
from crash.children import fork

from verl_doctor.toolkit.change import CompileBytecode
from verl_doctor.toolkit.changes import bytecode, lock
from verl_doctor.toolkit.changes.apply import Refused, apply, history, undo


def warm(root: Path, *roots: Path, python: str = sys.executable) -> None:
    apply(
        [CompileBytecode(Path(python), roots or (root,))], root / ".verl-doctor", fix="warm", code="LOAD001"
    )


def cache_of(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if ".verl-doctor" not in path.parts}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pkg/deep").mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/deep/one.py", "pkg/deep/tw\u00f6.py"):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "pkg/python2.py").write_text("print 'two'\n")
    (tmp_path / "pkg/latin.py").write_bytes(b"x = '\xe9'\n")
    return tmp_path


def test_missing_caches_are_written_and_removed(root: Path) -> None:
    before = names(root)
    warm(root)
    (entry,) = history(root / ".verl-doctor")
    assert (entry.state, entry.changes[0].now) == ("applied", "in place")
    assert names(root) - before == {
        "pkg/__pycache__",
        "pkg/deep/__pycache__",
        *(
            str(cache_of(root / name).relative_to(root))
            for name in ("pkg/__init__.py", "pkg/deep/one.py", "pkg/deep/tw\u00f6.py")
        ),
    }
    undo(root / ".verl-doctor")
    assert names(root) == before
    assert history(root / ".verl-doctor")[0].changes[0].now == "restored"


def test_python_accepts_the_caches(root: Path) -> None:
    warm(root)
    source = root / "pkg/deep/one.py"
    header = cache_of(source).read_bytes()[:16]
    seen = source.stat()
    assert header[:4] == importlib.util.MAGIC_NUMBER
    assert header[4:] == b"\0\0\0\0" + b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in (int(seen.st_mtime), seen.st_size)
    )


def test_existing_caches_are_neither_overwritten_nor_removed(root: Path) -> None:
    theirs = cache_of(root / "pkg/__init__.py")
    theirs.parent.mkdir()
    theirs.write_bytes(b"theirs, and stale")
    warm(root)
    assert cache_of(root / "pkg/deep/one.py").exists()
    undo(root / ".verl-doctor")
    assert theirs.read_bytes() == b"theirs, and stale"
    assert not cache_of(root / "pkg/deep/one.py").exists()


def test_undo_keeps_an_empty_cache_folder_that_existed_before(root: Path) -> None:
    (root / "pkg/__pycache__").mkdir()
    before = names(root)
    warm(root)
    undo(root / ".verl-doctor")
    assert names(root) == before


def test_undo_keeps_a_cache_that_python_rewrote(root: Path) -> None:
    warm(root)
    source = root / "pkg/deep/one.py"
    source.write_text("x = 222222\n")
    py_compile.compile(str(source))
    undo(root / ".verl-doctor")
    assert cache_of(source).exists()
    assert not cache_of(root / "pkg/__init__.py").exists()


def test_environment_variables_that_disable_or_move_bytecode_are_ignored(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(root / "prefix"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    warm(root)
    assert cache_of(root / "pkg/deep/one.py").read_bytes()[4:8] == b"\0\0\0\0"
    assert not (root / "prefix").exists()


@pytest.mark.slow
def test_complete_caches_create_no_transaction(root: Path) -> None:
    (root / "pkg/python2.py").unlink()
    (root / "pkg/latin.py").unlink()
    warm(root)
    warm(root)
    assert len(history(root / ".verl-doctor")) == 1


def test_invalid_interpreter_is_refused(root: Path) -> None:
    with pytest.raises(Refused, match="did not report which bytecode it reads"):
        warm(root, python="/bin/true")
    with pytest.raises(Refused, match=r"no-python.*cannot be run"):
        warm(root, python=str(root / "no-python"))
    with pytest.raises(Refused, match="is not a folder"):
        warm(root, root / "nowhere")
    assert not (root / ".verl-doctor").exists()


def test_unwritable_cache_folders_are_refused_with_the_first_error(root: Path) -> None:
    for folder in ("pkg", "pkg/deep"):
        (root / folder / "__pycache__").write_bytes(b"a file where the folder should be")
    before = names(root)
    with pytest.raises(Refused, match=r"no bytecode could be written.*everything is as it was"):
        warm(root)
    assert names(root) == before
    assert history(root / ".verl-doctor") == ()


@pytest.mark.slow
def test_undo_removes_everything_that_a_killed_doctor_wrote(root: Path) -> None:
    for number in range(20):
        (root / f"pkg/deep/quick{number}.py").write_text("x = 1\n")
    (root / "pkg/deep/slow.py").write_text(f"x = [{'f(1),' * 100_000}]\n")
    before = names(root)
    home = root / ".verl-doctor"
    doctor = fork()
    if doctor == 0:
        try:
            warm(root)
        finally:
            os._exit(0)
    while not list(root.glob("pkg/deep/__pycache__/*.pyc")):
        time.sleep(0.002)
    os.kill(doctor, signal.SIGKILL)
    os.waitpid(doctor, 0)
    cache_of(root / "pkg/deep/one.py").with_suffix(".pyc.140234").write_bytes(b"half of a cache")
    assert history(home)[-1].state in {"interrupted", "in progress"}
    last_change = history(home)[-1].changes[0]
    assert last_change.now == "partly in place"
    assert "was interrupted while writing 26 bytecode caches, " in last_change.description
    (undone,) = undo(home)
    assert undone.state == "undone"
    for transaction in (undone, *history(home)):
        (change,) = transaction.changes
        assert (change.now, "are there" in change.description) == ("restored", False)
    assert names(root) == before
    assert (
        lock.holder(home) is None
    )  # the compiling children kept the lock until they ended: none writes any more


def test_undo_keeps_caches_that_python_wrote_after_an_interrupted_change(root: Path) -> None:
    warm(root)
    home = root / ".verl-doctor"
    (home / "0001-applied/0.written.json.gz").unlink()  # as if killed before the end
    (home / "0001-applied").rename(home / "0001-applying")
    cache_of(root / "pkg/deep/one.py").unlink()
    (change,) = history(home)[0].changes
    assert change.description == "was interrupted while writing 5 bytecode caches, 2 exist now"
    assert change.now == "partly in place"
    undo(home)
    py_compile.compile(str(root / "pkg/deep/one.py"))
    (change,) = history(home)[0].changes
    assert (change.now, "there" in change.description) == ("restored", False)


def test_interpreter_that_takes_too_long_is_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "pkg/deep/slow.py").write_text(f"x = [{'f(1),' * 100_000}]\n")
    before = names(root)
    monkeypatch.setattr(bytecode, "_LIMIT", 0.02)
    with pytest.raises(Refused, match=r"took longer than 0 s and was stopped; everything is as it was"):
        warm(root)
    assert names(root) == before


def test_damaged_manifest_is_refused(root: Path) -> None:
    warm(root)
    home = root / ".verl-doctor"
    for damage in (b"", b"\x1f\x8b", b"not gzip"):
        (home / "0001-applied/0.absent.json.gz").write_bytes(damage)
        for step in (history, undo):
            with pytest.raises(Refused, match="is invalid"):
                step(home)
    assert cache_of(root / "pkg/deep/one.py").exists()


def test_file_names_that_are_not_utf8(root: Path) -> None:
    source = Path(os.fsdecode(os.fsencode(root) + b"/pkg/caf\xe9.py"))
    source.write_text("x = 1\n")
    warm(root)
    assert cache_of(source).exists()
    undo(root / ".verl-doctor")
    assert not cache_of(source).exists()

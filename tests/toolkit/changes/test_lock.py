"""One doctor at a time, whatever becomes of the other."""

from __future__ import annotations

import errno
import os
import platform
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.children import fork

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes import lock
from verl_doctor.toolkit.changes.apply import Refused, apply, history, undo


def child(job: Callable[[], object]) -> int:
    process = fork()
    if process == 0:
        code = 1
        try:
            job()
            code = 0
        finally:
            os._exit(code)
    return process


def ended_well(process: int) -> bool:
    return os.waitpid(process, 0)[1] == 0


def hold_for(home: Path, seconds: float) -> None:
    """Hold it for so long since another process has seen that it is held."""
    with lock.exclusive(home, 60):
        while not (home / "seen").exists():
            time.sleep(0.01)
        time.sleep(seconds)


def wait_until_held(home: Path) -> None:
    while lock.holder(home) is None:
        time.sleep(0.01)
    (home / "seen").touch()


@pytest.mark.slow
def test_second_doctor_waits_for_the_first(tmp_path: Path) -> None:
    first = child(lambda: hold_for(tmp_path, 0.3))
    wait_until_held(tmp_path)
    with lock.exclusive(tmp_path, 60):
        assert ended_well(first)


def test_refusal_after_waiting_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    first = child(lambda: hold_for(tmp_path, 60))
    wait_until_held(tmp_path)
    with pytest.raises(Refused, match=f"process {first} on "):
        apply([NewFile(tmp_path / "x", b"")], tmp_path, fix="f", code="C", patience=0.1)
    assert not (tmp_path / "x").exists()
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert lock.holder(tmp_path) is None
    assert apply([NewFile(tmp_path / "x", b"")], tmp_path, fix="f", code="C", patience=0.1) is not None


def test_transaction_of_a_running_doctor_is_in_progress(tmp_path: Path) -> None:
    home = tmp_path / "home"
    apply([NewFile(tmp_path / "x", b"")], home, fix="f", code="C")
    (home / "0001-applied").rename(home / "0001-applying")
    assert [entry.state for entry in history(home)] == ["interrupted"]
    with lock.exclusive(home, 1):
        assert [entry.state for entry in history(home)] == ["in progress"]


@pytest.mark.slow
def test_parallel_doctors_change_every_file_once(tmp_path: Path) -> None:
    """Eight processes apply the same plan and one of their own, and undo everything in the end."""
    home = tmp_path / "home"
    shared = tmp_path / "shared.py"
    shared.write_bytes(b"old\n")

    def work(number: int) -> None:
        apply([ReplaceFile(shared, b"old\n", b"new\n")], home, fix="shared", code="C", patience=300)
        apply([NewFile(tmp_path / f"own/{number}", b"x")], home, fix="own", code="C", patience=300)
        history(home)

    doctors = [child(lambda n=n: work(n)) for n in range(8)]
    assert [ended_well(doctor) for doctor in doctors] == [True] * 8
    assert shared.read_bytes() == b"new\n"
    assert sorted(entry.fix for entry in history(home)) == ["own"] * 8 + ["shared"]
    assert [entry.id for entry in history(home)] == [f"{number:04}" for number in range(1, 10)]
    undo(home, everything=True)
    assert shared.read_bytes() == b"old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "shared.py"]


def test_failed_first_attempt_leaves_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk an empty file can be made, but nothing can be written into it."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file, home = tmp_path / "a", tmp_path / ".verl-doctor"
    file.write_text("a")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Refused, match="No space left"):
        apply([ReplaceFile(file, b"a", b"b")], home, fix="f", code="X1")
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.undo()
    apply([ReplaceFile(file, b"a", b"b")], home, fix="f", code="X1")
    assert file.read_text() == "b"


def test_lock_that_was_removed_with_an_empty_journal_is_made_again(tmp_path: Path) -> None:
    """The second waits for a file that the first removes: a third would lock a new one beside it."""

    def first() -> None:
        with lock.exclusive(tmp_path, 60):
            while not (tmp_path / "seen").exists():
                time.sleep(0.01)
            time.sleep(0.3)
            (tmp_path / "lock").unlink()

    process = child(first)
    wait_until_held(tmp_path)
    with lock.exclusive(tmp_path, 60):
        assert lock.holder(tmp_path) == f"{os.getpid()} on {platform.node()}"
    assert ended_well(process)

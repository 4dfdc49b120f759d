"""A path on a hanging file system is reported and not waited for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import Doctor

from verl_doctor.toolkit.logs.sources import sources_of
from verl_doctor.toolkit.system import silent_path


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for which the kernel never responds, as on a network mount without a server."""
    folder, over, real = tmp_path / "gone", threading.Event(), os.stat

    def look(path: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(str(folder)):
            over.wait()
        return real(path, **how)

    monkeypatch.setattr(silent_path.os, "stat", look)
    monkeypatch.setattr(silent_path, "MOUNT_TIMEOUT", 0.05)
    yield folder
    over.set()


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--model"),
        ("check",),
        ("report", "--output"),
        ("compare",),
        ("logs", "run.log", "--script"),
        ("tiny",),
    ],
    ids=" ".join,
)
def test_unresponsive_file_system_is_one_sentence(words: tuple[str, ...], here: Doctor, gone: Path) -> None:
    done = here(*words, gone / "run.sh", cwd=gone.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{gone}/run.sh: its file system does not respond: " in done.stderr
    assert " remount it, or name a copy elsewhere" in done.stderr


def test_other_logs_are_read_despite_an_unresponsive_one(gone: Path) -> None:
    log, notes = gone.parent / "run.log", list[str]()
    log.touch()
    (found,) = sources_of([str(gone / "a.log"), str(log)], notes.append)
    assert found.path == log
    (note,) = notes
    assert note.startswith(f"{gone}/a.log was not read: its file system does not respond")


def test_existing_and_missing_paths_are_responsive(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / ("x" * 5000), "\0"):
        assert silent_path.why_silent(str(path)) == ""

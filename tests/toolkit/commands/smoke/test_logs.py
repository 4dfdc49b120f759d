"""Log folders: running climbs keep theirs, empty ones are removed, and an unwritable place is replaced."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.smoke.logs import log_folder


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "state" / "verl-doctor" / "smoke"


def climbed(log: str = "it breaks") -> Path:
    """A climb with this log, or without one if it is empty."""
    with log_folder(pytest.fail) as folder:
        (folder / "rung-1").mkdir()
        if log:
            (folder / "rung-1" / "child.log").write_text(log)
    return folder


def left_by_a_killed_one(folder: Path) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "rung-1").mkdir()
    (folder / "owned").touch()
    return folder


def test_running_climb_keeps_its_folder_and_the_oldest_others_are_removed(top: Path) -> None:
    with log_folder(pytest.fail) as running:
        ended = [climbed() for _ in range(13)]
        assert running.is_dir()
        assert sum(folder.is_dir() for folder in ended) == 10
        assert len({running, *ended}) == 14, (
            "several begin in the same second, and have the same number in another container"
        )


def test_folders_without_a_log_are_removed_and_do_not_count(top: Path) -> None:
    kept = climbed()
    assert not climbed("").exists()
    for number in range(12):
        left_by_a_killed_one(top / f"2026-01-01T00-00-00-{platform.node()}-{number}")
    climbed("")
    assert list(top.iterdir()) == [kept]


@pytest.mark.parametrize("days", [0, 2])
def test_recent_folder_locked_on_another_machine_is_kept(days: int, top: Path) -> None:
    left = left_by_a_killed_one(top / "2026-01-01T00-00-00-node7-a")
    os.utime(left, (time.time() - days * 86400,) * 2)
    climbed("")
    assert left.exists() is (days == 0)


def test_logs_are_temporary_files_without_a_state_folder(
    top: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    said: list[str] = []
    with log_folder(said.append) as folder:
        assert folder.parent == tmp_path
    (message,) = said
    assert message.startswith("/dev/null")
    assert message.endswith(f": logs of failures go to {folder}")

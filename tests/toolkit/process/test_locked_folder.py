"""Folders with an owner in a shared place: only those of this user are ever considered abandoned."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.process import locked_folder
from verl_doctor.toolkit.process.locked_folder import abandoned, owned, text_in


def left(place: Path, name: str = "vds-left", mode: int = 0o700) -> Path:
    """A folder left by a killed owner."""
    folder = place / name
    folder.mkdir()
    with owned(folder):
        pass
    folder.chmod(mode)
    return folder


def found(place: Path) -> list[Path]:
    return list(abandoned(place, "vds-"))


def test_folder_is_abandoned_only_after_its_owner_has_ended(tmp_path: Path) -> None:
    folder = left(tmp_path)
    with owned(folder):
        assert found(tmp_path) == []
    assert found(tmp_path) == [folder]
    assert found(tmp_path / "nowhere") == []


def test_reader_has_exclusive_access(tmp_path: Path) -> None:
    folder = left(tmp_path)
    for path in abandoned(tmp_path, "vds-"):
        assert path == folder
        assert found(tmp_path) == []


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_folder_writable_by_others_is_not_trusted(mode: int, tmp_path: Path) -> None:
    folder = left(tmp_path, mode=mode)
    assert found(tmp_path) == []
    (folder / "note").write_text("a thesis to remove")
    with pytest.raises(OSError, match="another user"):
        text_in(folder, "note")


def test_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path)
    monkeypatch.setattr(locked_folder.os, "geteuid", lambda: os.getuid() + 1)
    assert found(tmp_path) == []


def test_links_and_pipes_are_no_proof_and_do_not_block(tmp_path: Path) -> None:
    own = tmp_path / "a file of this user"
    own.touch()
    for name in ("vds-link", "vds-pipe", "vds-folder"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "vds-link" / "owned").symlink_to(own)
    os.mkfifo(tmp_path / "vds-pipe" / "owned")
    (tmp_path / "vds-folder" / "owned").mkdir()
    (tmp_path / "vds-led").symlink_to(left(tmp_path, "elsewhere"))
    assert found(tmp_path) == []
    os.mkfifo(tmp_path / "vds-pipe" / "note")
    with pytest.raises(OSError, match="not a file of this user"):
        text_in(tmp_path / "vds-pipe", "note")


def test_folder_has_an_owner_from_its_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between making its lock and locking it another one may look."""
    folder = tmp_path / "vds-new"
    folder.mkdir(mode=0o700)
    seen: list[Path] = []
    flock = locked_folder.fcntl.flock

    def slow(file: object, how: int) -> None:
        monkeypatch.setattr(locked_folder.fcntl, "flock", flock)
        seen.extend(found(tmp_path))
        flock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(locked_folder.fcntl, "flock", slow)
    with owned(folder):
        assert seen == found(tmp_path) == []


def test_no_place_for_temporary_files_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(locked_folder.tempfile, "TemporaryDirectory", nowhere)
    with pytest.raises(OSError, match="no folder for temporary files") as caught:
        locked_folder.temporary_folder()
    assert caught.value.errno == errno.EROFS

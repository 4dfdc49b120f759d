"""A file of patches that another user could have written is refused: it is code that would be written into verl."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crash.children import NOBODY

from verl_doctor.toolkit.patchsets import patchset
from verl_doctor.toolkit.target import UsageError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "patches.json"
    file.write_text(patchset.dump([], "0.9.1", "0.2"))
    return file


def test_own_file_is_read_from_a_sticky_folder_too(file: Path) -> None:
    assert patchset.load(file) == []
    file.parent.chmod(0o1777)
    assert patchset.load(file) == []


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("place", ["file", "folder"])
def test_world_writable_file_is_refused(file: Path, place: str, linked: bool) -> None:
    (file if place == "file" else file.parent).chmod(0o777)
    if linked:
        (file.parent / "mine").mkdir(mode=0o700)
        (file.parent / "mine/link.json").symlink_to(file)
    with pytest.raises(UsageError, match=r"not obeyed.*anybody may write to .*mode 0777.*a copy of your own"):
        patchset.load(file.parent / "mine/link.json" if linked else file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(UsageError, match=f"belongs to user {NOBODY} .*mode 0644"):
        patchset.load(file)

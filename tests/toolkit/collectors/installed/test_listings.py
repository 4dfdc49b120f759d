"""Listings: a cache of folder contents for one run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.listings import Listing, Listings
from verl_doctor.toolkit.collectors.installed.result_cache import fingerprint


def test_folder_is_fingerprinted_by_its_entries(tmp_path: Path) -> None:
    for name in ("a.py", "b.so", "c.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "inner").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "inner")
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "gone")
    found = Listings().of(str(tmp_path))
    assert (sorted(found.sources), found.compiled) == (["a.py", "nowhere.py"], ["b.so"])
    assert (found.folders, found.links, found.error) == (["inner"], ["linked"], 0)
    seen = found.sources["a.py"]
    assert isinstance(seen, os.stat_result)
    assert (seen.st_size, seen.st_ino) == (4, (tmp_path / "a.py").stat().st_ino)
    assert found.sources["nowhere.py"] == errno.ENOENT


@pytest.mark.parametrize(("name", "error"), [("gone", errno.ENOENT), ("file", errno.ENOTDIR)])
def test_unlistable_folder_has_a_reason(tmp_path: Path, name: str, error: int) -> None:
    (tmp_path / "file").write_text("")
    assert Listings().of(str(tmp_path / name)) == Listing(error=error)


def test_folder_is_listed_once_per_run(tmp_path: Path) -> None:
    run = Listings()
    before = fingerprint([tmp_path], run)
    (tmp_path / "new.py").write_text("")
    assert fingerprint([tmp_path], run) == before
    assert fingerprint([tmp_path], Listings()) != before


def test_only_regular_files_have_a_status(tmp_path: Path) -> None:
    for name in ("a.py", "b.h"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.h")
    found = Listings()
    sizes = {name: found.status(f"{tmp_path}/{name}") for name in ("a.py", "b.h")}
    assert {name: status and status.st_size for name, status in sizes.items()} == {"a.py": 4, "b.h": 3}
    for name in ("c.py", "c.h", "folder.py", "pipe.h", "a.py/b.py", "\0"):
        assert found.status(f"{tmp_path}/{name}") is None

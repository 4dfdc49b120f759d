"""Listings: what one run has seen of folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.fact_listings import Listing, Listings
from verl_doctor.toolkit.remember import fingerprint


def test_a_folder_is_told_by_what_kind_of_things_lie_in_it(tmp_path: Path) -> None:
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
def test_what_cannot_be_listed_says_why(tmp_path: Path, name: str, error: int) -> None:
    (tmp_path / "file").write_text("")
    assert Listings().of(str(tmp_path / name)) == Listing(error=error)


def test_a_folder_is_listed_once_in_a_run_and_anew_in_the_next(tmp_path: Path) -> None:
    run = Listings()
    before = fingerprint([tmp_path], run)
    (tmp_path / "new.py").write_text("")
    assert fingerprint([tmp_path], run) == before
    assert fingerprint([tmp_path], Listings()) != before

"""The cache: entries that another user could have written are never read, and its folders are private."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import platformdirs
import pytest
from crash.children import NOBODY

from verl_doctor.toolkit.collectors.installed import result_cache
from verl_doctor.toolkit.collectors.packages.journal import JournalHistory
from verl_doctor.toolkit.system import cache

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "cache"))
    return platformdirs.user_cache_path("verl-doctor")


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_cache_is_private_under_every_umask(top: Path, umask: int) -> None:
    file = top / "Kind" / "key.json"
    before = os.umask(umask)
    try:
        cache.write(file, {"a": 1})
    finally:
        os.umask(before)
    assert cache.read(file, 100) == {"a": 1}
    for folder in (file.parent, top, top.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("place", ["", "Kind", "Kind/key.json"])
def test_world_writable_cache_is_ignored_and_reported_once(
    top: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = top / "Kind" / "key.json"
    cache.write(file, "mine")
    (top / place).chmod(0o777)
    assert cache.read(file, 100) is None
    assert cache.read(file, 100) is None
    warning = capsys.readouterr().err
    assert warning.count(f"the cache {top} is ignored: anybody may write to {top / place} (owner ") == 1
    assert "mode 0777); inspect it, and if you trust it: chmod -R go-w" in warning


@as_root
@pytest.mark.parametrize("place", ["Kind", "Kind/key.json"])
def test_entry_written_by_another_user_is_never_read(top: Path, place: str) -> None:
    """On 0.1.0 it turned a failure into "OK"."""
    result_cache.keep(JournalHistory(), "key")
    (file,) = top.rglob("*.json")
    assert result_cache.recall(JournalHistory, "key") == JournalHistory()
    os.chown(file if place.endswith(".json") else file.parent, NOBODY, NOBODY)
    assert result_cache.recall(JournalHistory, "key") is None


def test_links_and_pipes_are_not_read(top: Path) -> None:
    cache.write(top / "a.json", 1)
    (top / "link.json").symlink_to(top / "a.json")
    os.mkfifo(top / "pipe.json")
    assert cache.read(top / "link.json", 100) is None
    assert cache.read(top / "pipe.json", 100) is None


def test_folder_writable_by_others_is_not_written_to(top: Path) -> None:
    top.mkdir(parents=True)
    top.chmod(0o777)
    cache.write(top / "Kind" / "key.json", 1)
    assert list(top.iterdir()) == []


def test_folders_outside_the_cache_keep_their_mode(tmp_path: Path) -> None:
    folder = tmp_path / "verl-doctor" / "mine"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o755)
    cache.write(folder / "a.json", 1)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o755
    assert json.loads((folder / "a.json").read_text()) == 1

"""Remembered answers: valid for exactly the files they came from, and never worse than none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest

from verl_doctor.toolkit.collectors.installed.result_cache import keep, remembered


@dataclass(frozen=True)
class Part:
    name: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    parts: tuple[Part, ...]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    return folder


def cached(sources: Path, text: str = "first") -> str:
    answer = remembered(Answer, "about", [sources], lambda: Answer((Part(text, (1, 2)),)))
    assert answer.parts[0].lines == (1, 2)
    return answer.parts[0].name


def kept() -> list[Path]:
    return sorted((platformdirs.user_cache_path("verl-doctor") / "Answer").glob("*.json"))


def cache() -> Path:
    (file,) = kept()
    return file


def test_same_files_give_the_cached_result(sources: Path) -> None:
    assert cached(sources) == "first"
    assert cached(sources, "second") == "first"


def test_changed_file_with_its_old_mtime_is_noticed(sources: Path) -> None:
    cached(sources)
    file = sources / "a.py"
    before = file.stat()
    replacement = sources / "new"
    replacement.write_text("x = 2\n")
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
    replacement.replace(file)
    assert cached(sources, "second") == "second"


def test_single_or_missing_file_can_be_a_source(sources: Path) -> None:
    file = sources / "b.txt"
    assert cached(file) == "first"
    assert cached(file, "second") == "first"
    file.write_text("x")
    assert cached(file, "written") == "written"
    file.write_text("xy")
    assert cached(file, "edited") == "edited"


def test_new_renamed_and_removed_files_are_noticed(sources: Path) -> None:
    cached(sources)
    (sources / "b.py").write_text("")
    assert cached(sources, "new") == "new"
    (sources / "b.py").rename(sources / "c.py")
    assert cached(sources, "renamed") == "renamed"
    (sources / "c.py").unlink()
    assert cached(sources, "gone") == "first"


def test_edit_behind_a_link_is_noticed_and_circular_links_end(sources: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b.py").write_text("x = 1\n")
    (sources / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(sources)
    (sources / "itself").symlink_to(sources)
    assert cached(sources) == "first"
    assert cached(sources, "second") == "first"
    (elsewhere / "b.py").write_text("x = 22\n")
    assert cached(sources, "third") == "third"


@pytest.mark.parametrize("nonsense", [b"", b"{", b"[3]", b'{"key": 3}', b"\xff" * 100, b"[" * 100_000])
def test_damaged_cache_is_ignored(sources: Path, nonsense: bytes) -> None:
    cached(sources)
    cache().write_bytes(nonsense)
    assert cached(sources, "second") == "second"
    assert cached(sources, "third") == "second"


def test_cached_result_with_another_schema_is_computed_again(sources: Path) -> None:
    cached(sources)
    cache().write_text(cache().read_text().replace('"lines"', '"rows"'))
    assert cached(sources, "second") == "second"


def test_unwritable_cache_is_harmless(sources: Path) -> None:
    home = platformdirs.user_cache_path("verl-doctor")
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("a file where the folder should be")
    assert cached(sources) == "first"


def test_oldest_results_are_evicted(sources: Path) -> None:
    for number in range(5):
        keep(Answer((Part("", (number,)),)), f"{number}", most=3)
        os.utime(platformdirs.user_cache_path("verl-doctor") / "Answer" / f"{number}.json", (number, number))
    assert [file.stem for file in kept()] == ["2", "3", "4"]

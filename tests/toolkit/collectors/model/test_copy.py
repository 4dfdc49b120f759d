"""Whether the processes of a node wait for the one that copies a model, according to verl's sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.model.copy import ModelCopy, model_copy
from verl_doctor.toolkit.facts import Absent, Unknown

LOCK_INSIDE = """
def copy_to_shm(src):
    with FileLock(dest + ".lock"):
        shutil.copytree(src, dest)
"""
LOCK_AROUND = """
def copy_to_shm(src):
    shutil.copytree(src, dest)
def copy_to_local(src, use_shm=False):
    with file_lock(src):
        return copy_to_shm(src)
"""
MOVED = """
def copy_to_shm(src):
    _whole(src)
def _whole(src):
    shutil.copytree(src, aside)
    os.rename(aside, dest)
"""
# Another function takes the lock, and text is replaced: neither protects the copy.
NEITHER = """
def copy_to_shm(src):
    shutil.copytree(src, name.replace("/", "_"))
def copy_to_local(src, filelock=".file.lock"):
    with FileLock(filelock):
        fetch(src)
    return copy_to_shm(src)
"""


def look(folder: Path, text: str) -> ModelCopy | Unknown:
    (folder / "utils").mkdir()
    (folder / "utils" / "fs.py").write_text(text)
    found = model_copy.collect(VerlTrees(Tree(str(folder), "verl", "0.9.1", "the test"), "the test"))
    assert isinstance(found, (ModelCopy, Unknown))
    return found


@pytest.mark.parametrize(
    ("text", "guarded"), [(LOCK_INSIDE, True), (LOCK_AROUND, True), (MOVED, True), (NEITHER, False)]
)
def test_copy_is_guarded_by_a_lock_or_a_rename(text: str, guarded: bool, tmp_path: Path) -> None:
    assert look(tmp_path, text) == ModelCopy(guarded, str(tmp_path / "utils" / "fs.py"))


def test_releases_without_the_function_are_absent(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path, "def copy_to_local(src): ...\n"), Absent)


def test_unparsable_sources_are_unknown(tmp_path: Path) -> None:
    found = look(tmp_path, "def copy_to_shm(:\n")
    assert isinstance(found, Unknown)
    assert "fs.py" in found.reason

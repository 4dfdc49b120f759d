"""Modules on an interpreter's path."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.import_path import is_on_path


@pytest.mark.parametrize(
    "file",
    [
        "flashinfer/__init__.py",
        "flashinfer.py",
        "flashinfer.cpython-311-x86_64-linux-gnu.so",
        "__editable___flashinfer_0_1_finder.py",
    ],
)
def test_importable_forms_are_recognised(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert is_on_path("flashinfer", [str(tmp_path / "gone"), str(tmp_path)])


@pytest.mark.parametrize("file", ["flashinfer_python/__init__.py", "flashinfer.txt", "other.py"])
def test_other_files_are_not_the_module(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert not is_on_path("flashinfer", [str(tmp_path)])

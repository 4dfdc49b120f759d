"""Modules on an interpreter's path."""

from __future__ import annotations

import zipfile
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
        "_flashinfer_editable_loader.py",
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


def test_editable_install_of_a_project_with_another_name(tmp_path: Path) -> None:
    hook = tmp_path / "__editable___project_0_1_finder.py"
    hook.write_text("MAPPING = {'mine': '/home/me/project/mine', 'shared.one': '/home/me/project/one'}")
    assert is_on_path("mine", [str(tmp_path)])
    assert is_on_path("shared", [str(tmp_path)])
    assert not is_on_path("other", [str(tmp_path)])


def test_zip_files_are_on_the_path(tmp_path: Path) -> None:
    packed = tmp_path / "code.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mine/main.py", "")
    assert is_on_path("mine", [str(packed)])
    assert not is_on_path("other", [str(packed)])
    packed.write_bytes(b"not a zip file")
    assert is_on_path("mine", [str(packed)])

"""The file that a path may have meant."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.beside import beside


def test_the_only_file_of_that_name_that_lies_beside(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "tools.yaml").touch()
    assert beside(Path("/gone/tools.yaml"), (here, there)) == str(here / "tools.yaml")
    (there / "tools.yaml").touch()
    assert beside(Path("/gone/tools.yaml"), (here, there)) == ""


def test_a_slip_in_the_name(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").touch()
    (tmp_path / "notes.txt").touch()
    assert beside(tmp_path / "trian.parquet", ()) == str(tmp_path / "train.parquet")
    assert beside(tmp_path / "other.parquet", ()) == ""
    assert beside(Path("/gone/x.parquet"), ()) == ""

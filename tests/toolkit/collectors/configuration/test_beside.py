"""The file that a wrong path may refer to."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.beside import beside, model_beside


def test_single_file_of_the_same_name_nearby_is_suggested(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (here / "tools.yaml").touch()
    assert beside(Path("/gone/tools.yaml"), (here, there)) == str(here / "tools.yaml")
    (there / "tools.yaml").touch()
    assert beside(Path("/gone/tools.yaml"), (here, there)) == ""


def test_typo_in_a_file_name_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").touch()
    (tmp_path / "notes.txt").touch()
    assert beside(tmp_path / "trian.parquet", ()) == str(tmp_path / "train.parquet")
    assert beside(tmp_path / "other.parquet", ()) == ""
    assert beside(Path("/gone/x.parquet"), ()) == ""


def test_file_name_prefix_is_completed(tmp_path: Path) -> None:
    for name in ("validation.parquet", "train.parquet", "train_small.parquet", "tools.yaml"):
        (tmp_path / name).touch()
    assert beside(tmp_path / "val.parquet", ()) == str(tmp_path / "validation.parquet")
    assert beside(tmp_path / "train.parq", ()) == str(tmp_path / "train.parquet")
    assert beside(tmp_path / "tools.yml", ()) == ""
    (tmp_path / "valid.parquet").touch()
    assert beside(tmp_path / "val.parquet", ()) == str(tmp_path / "valid.parquet")
    assert beside(tmp_path / "va.parquet", ()) == ""


def test_single_matching_model_folder_is_suggested(tmp_path: Path) -> None:
    for name in ("qwen2-0.5b", "llama", "cached/snapshots/0a1b", "actor/huggingface", "two/a", "two/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    assert model_beside(tmp_path / "qwen2-0.5") == str(tmp_path / "qwen2-0.5b")
    assert model_beside(tmp_path / "qwen2-0.5b" / "config.json") == str(tmp_path / "qwen2-0.5b")
    assert model_beside(tmp_path / "mistral") == ""
    assert model_beside(tmp_path / "cached") == str(tmp_path / "cached/snapshots/0a1b")
    assert model_beside(tmp_path / "actor") == str(tmp_path / "actor/huggingface")
    assert model_beside(tmp_path / "two") == ""
    assert model_beside(tmp_path / "nowhere" / "qwen2") == ""

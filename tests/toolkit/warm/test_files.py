"""Which files a warm-up reads, and in which order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.warm.files import Chosen, choose, rank_of


def folder(top: Path, *names: str, **contents: str) -> Path:
    top.mkdir(parents=True, exist_ok=True)
    for name in names:
        (top / name).write_text(f"content of {name}")
    for name, text in contents.items():
        (top / name).write_text(text)
    return top


def names(chosen: Chosen) -> list[str]:
    return [Path(file.path).name for file in chosen.files]


def index(*shards: str) -> str:
    return json.dumps({"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}})


def test_files_are_read_in_the_order_of_a_loader(tmp_path: Path) -> None:
    shards = [f"model-{number}-of-10.safetensors" for number in (10, 9, 1)]
    model = folder(
        tmp_path,
        *shards,
        "config.json",
        "tokenizer.json",
        "model.safetensors",  # the same weights in one file, as some repositories have them
        "consolidated.safetensors",
        "pytorch_model.bin",
        "optimizer.pt",
        **{"model.safetensors.index.json": index(*shards)},
    )
    assert names(choose(model, ())) == [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "model-1-of-10.safetensors",
        "model-9-of-10.safetensors",
        "model-10-of-10.safetensors",
    ]


@pytest.mark.parametrize(
    ("there", "read"),
    [
        (["a.safetensors", "b.bin"], ["a.safetensors"]),
        (["pytorch_model.bin", "training_args.bin", "optimizer.pt"], ["pytorch_model.bin"]),
        (["consolidated.safetensors"], ["consolidated.safetensors"]),
        (["consolidated.00.pth"], ["consolidated.00.pth"]),
        (["m.gguf"], ["m.gguf"]),
        (["optimizer.pt"], []),
    ],
)
def test_preferred_format_of_a_loader_is_read(tmp_path: Path, there: list[str], read: list[str]) -> None:
    assert names(choose(folder(tmp_path, *there), ())) == read


def test_tensors_listed_only_in_the_index_are_reported(tmp_path: Path) -> None:
    wanted = index("a.safetensors", "b.safetensors", "../../etc/passwd")
    found = choose(folder(tmp_path, "a.safetensors", **{"model.safetensors.index.json": wanted}), ())
    assert names(found) == ["model.safetensors.index.json", "a.safetensors"]
    assert [(Path(file.path).name, file.reason) for file in found.left_out] == [
        ("b.safetensors", "the index names it, but it does not exist")
    ]


def test_damaged_index_hides_no_weights(tmp_path: Path) -> None:
    found = choose(
        folder(tmp_path, "a.safetensors", **{"model.safetensors.index.json": '{"weight_map": 1}'}), ()
    )
    assert "a.safetensors" in names(found)


def test_each_blob_of_the_hub_cache_counts_once(tmp_path: Path) -> None:
    blobs = folder(tmp_path / "blobs", "one", "two")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name, blob in (("a.safetensors", "one"), ("b.safetensors", "two"), ("config.json", "two")):
        (snapshot / name).symlink_to(blobs / blob)
    os.link(blobs / "one", tmp_path / "again")
    model = choose(snapshot, ())
    assert [Path(file.path).name for file in model.files] == ["config.json", "a.safetensors"]
    everything = choose(None, [tmp_path])
    assert len(everything.files) == 2
    assert everything.size == sum((blobs / name).stat().st_size for name in ("one", "two"))


def test_circular_links_empty_and_special_files_are_skipped(tmp_path: Path) -> None:
    top = folder(tmp_path / "data", "part-10", "part-9")
    (top / "round").symlink_to(top)
    (top / "nowhere").symlink_to(top / "gone")
    (top / "empty").touch()
    os.mkfifo(top / "pipe")
    found = choose(None, [top, top / "part-9"])
    assert names(found) == ["part-9", "part-10"]
    assert [(Path(file.path).name, file.reason) for file in found.left_out] == [
        ("nowhere", "No such file or directory")
    ]
    assert choose(None, [top / "pipe"]).left_out[0].reason == "it is neither a file nor a folder"


def test_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = folder(tmp_path, "mine", "theirs")
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith("theirs"))
    found = choose(None, [top])
    assert names(found) == ["mine"]
    assert found.left_out[0].reason == "no permission to read it"
    assert choose(tmp_path / "no model", ()).left_out[0].reason == "No such file or directory"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("model-rank-3-part-0.safetensors", 3),
        ("model_world_size_16_rank_12.pt", 12),
        ("optim_world_size_8_rank_0.pt", 0),
        ("adapter-low-rank-16.safetensors", None),
        ("model-00003-of-00008.safetensors", None),
    ],
)
def test_rank_is_read_from_the_file_name(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


def test_only_common_files_and_those_of_the_ranks_are_read(tmp_path: Path) -> None:
    parts = [f"model-rank-{rank}-part-0.safetensors" for rank in range(4)]
    found = choose(folder(tmp_path, "config.json", *parts), (), ranks={1, 3})
    assert names(found) == ["config.json", parts[1], parts[3]]


def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_doctor.toolkit.warm.files._MOST_FILES", 2)
    found = choose(None, [folder(tmp_path, "a", "b", "c", "d")])
    assert names(found) == ["a", "b"]
    assert "it comes after 2 others" in found.left_out[0].reason


def test_folder_without_weights_is_reported_and_not_called_warm(tmp_path: Path) -> None:
    model = folder(tmp_path, "model-00001-of-00006.safetensors", "config.json")
    (model / "model-00002-of-00006.safetensors").touch()
    (model / "model-00003-of-00006.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    os.mkfifo(model / "model-00004-of-00006.safetensors")
    with (model / "model-00005-of-00006.safetensors").open("wb") as file:
        file.truncate(10 << 30)
    reasons = {Path(file.path).name[6:11]: file.reason for file in choose(model, ()).left_out}
    assert reasons == {
        "00002": "it is empty",
        "00003": "a pointer of Git LFS, not the weights",
        "00004": "it is not a file",
        "00005": "it is sparse and was never written",
        "00006": "the names of the other shards imply it, but it does not exist",
    }

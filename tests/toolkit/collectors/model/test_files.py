"""The weight files of folders as hub, git and broken-off downloads leave them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.model import files
from verl_doctor.toolkit.collectors.model.files import ModelFiles, model_files
from verl_doctor.toolkit.collectors.model.model import LFS_MARK, Model
from verl_doctor.toolkit.collectors.model.weight_files import INDEX
from verl_doctor.toolkit.facts import Absent, Unknown

BYTES = {"BF16": 2, "F32": 4}


def weights(path: Path, kind: str = "BF16", **elements: int) -> int:
    """Write a file in which each tensor has so many elements, none of them on the disk, and return its size."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, number in elements.items():
        begin, end = end, end + number * BYTES[kind]
        header[name] = {"dtype": kind, "shape": [number, 1], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)
    return path.stat().st_size


def index(folder: Path, **where: str) -> None:
    folder.joinpath(INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}), "utf-8")


def look(folder: Path) -> ModelFiles:
    found = model_files.collect(Model(str(folder), "--model"))
    assert isinstance(found, ModelFiles), found
    return found


def test_header_describes_the_content_of_a_file(tmp_path: Path) -> None:
    size = weights(tmp_path / "model.safetensors", "F32", a=10, b=7)
    (file,) = look(tmp_path).files
    assert (file.format, file.size, file.ends) == ("safetensors", size, size)
    assert (file.parameters, file.kinds, file.linked) == (17, {"F32": 68}, False)


def test_files_without_weights_are_skipped(tmp_path: Path) -> None:
    for name in ("training_args.bin", "optimizer.pt", "tokenizer.json", "config.json", "README.md"):
        tmp_path.joinpath(name).touch()
    (tmp_path / "original.bin").mkdir()
    assert isinstance(model_files.collect(Model(str(tmp_path), "--model")), Absent)
    gone = model_files.collect(Model(str(tmp_path / "gone"), "--model"))
    assert isinstance(gone, Unknown)
    assert "No such file" in gone.reason


def test_indexed_safetensors_are_preferred(tmp_path: Path) -> None:
    size = weights(tmp_path / "model-1.safetensors", a=10)
    weights(tmp_path / "consolidated.safetensors", a=10)
    for name in ("pytorch_model.bin", "model.gguf"):
        tmp_path.joinpath(name).write_bytes(bytes(99))
    assert [file.name for file in look(tmp_path).loaded] == ["model-1.safetensors"]
    index(tmp_path, a="model-1.safetensors")
    found = look(tmp_path)
    assert [file.name for file in found.loaded] == ["model-1.safetensors"]
    assert found.bytes == size
    assert [file.name for file in found.of("pickle", "gguf")] == ["model.gguf", "pytorch_model.bin"]


def test_truncated_or_extended_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = weights(path, a=1000)
    os.truncate(path, whole - 1)
    (file,) = look(tmp_path).files
    assert (file.size, file.ends, file.trouble) == (whole - 1, whole, "")
    os.truncate(path, whole + 5)
    assert look(tmp_path).files[0].size > whole


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 16,
        b"\x02\0\0\0\0\0\0\0{]",
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x09\0\0\0\0\0\0\0" + b'{"a": {}}',
        b"\x22\0\0\0\0\0\0\0" + b'{"a": {"data_offsets": [0, 1, 2]}}',
        b"<html>not found</html>",
    ],
)
def test_invalid_header_is_reported(tmp_path: Path, content: bytes) -> None:
    tmp_path.joinpath("model.safetensors").write_bytes(content)
    (file,) = look(tmp_path).files
    assert file.ends is None
    assert file.trouble


def test_git_lfs_pointer_is_left_to_another_rule(tmp_path: Path) -> None:
    tmp_path.joinpath("model.safetensors").write_bytes(LFS_MARK + b"v1\noid sha256:0\nsize 5\n")
    assert look(tmp_path).files[0].trouble == ""


def test_links_into_the_hub_cache_are_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    blob = tmp_path / "blob"
    size = weights(blob, a=10)
    (snapshot / "model.safetensors").symlink_to(blob)
    (file,) = look(snapshot).files
    assert (file.linked, file.size, file.ends) == (True, size, size)
    blob.unlink()
    assert look(snapshot).files[0].trouble == "it is a broken link"


def test_index_is_compared_with_the_shards(tmp_path: Path) -> None:
    weights(tmp_path / "1.safetensors", a=1, b=1)
    weights(tmp_path / "2.safetensors", b=1, c=1)
    index(tmp_path, a="1.safetensors", b="1.safetensors", c="1.safetensors", d="2.safetensors")
    found = look(tmp_path)
    assert found.indexed == ("1.safetensors", "2.safetensors")
    # c is in another shard than in the index: a reader of all shards finds it.
    assert (found.lost, found.lost_count) == ((("d", "2.safetensors"),), 1)
    assert (found.twice, found.twice_count) == ((("b", "1.safetensors"),), 1)


def test_missing_tensors_are_not_reported_while_a_header_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights(tmp_path / "1.safetensors", a=1)
    index(tmp_path, a="1.safetensors", d="1.safetensors")
    assert look(tmp_path).lost_count == 1
    monkeypatch.setattr(files, "OPEN_TIMEOUT", -1.0)
    found = look(tmp_path)
    assert found.lost_count == 0
    assert (found.files[0].ends, found.files[0].trouble) == (None, "")


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": []}', '{"weight_map": {}}'])
def test_silent_index_read(tmp_path: Path, content: str) -> None:
    weights(tmp_path / "model.safetensors", a=1)
    tmp_path.joinpath(INDEX).write_text(content, "utf-8")
    found = look(tmp_path)
    assert (found.indexed, [file.name for file in found.loaded]) == ((), ["model.safetensors"])


def test_invalid_offsets_make_the_header_invalid(tmp_path: Path) -> None:
    for name, end in (("a", "Infinity"), ("b", "true"), ("c", "-4"), ("d", "NaN")):
        header = f'{{"t": {{"dtype": "BF16", "shape": [2], "data_offsets": [0, {end}]}}}}'.encode()
        (tmp_path / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert {file.trouble for file in look(tmp_path).files} == {"its header is invalid"}


def test_oversized_header_is_not_read(tmp_path: Path) -> None:
    length = 40 * 1024 * 1024
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.write(length.to_bytes(8, "little") + b"[")
        file.truncate(8 + length)
    (only,) = look(tmp_path).files
    assert (only.trouble, only.ends) == ("", None)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").mkdir()
    (tmp_path / "c.safetensors").touch()
    (only,) = look(tmp_path).files
    assert (only.name, only.trouble) == ("c.safetensors", "it is empty")

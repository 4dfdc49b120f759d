"""Which values a vLLM takes for its engine arguments, and from which settings verl hands them on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures import source_trees

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.vllm.engine_limits import EngineLimits, engine_limits

CACHE = "class CacheConfig:\n    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)\n    size: int = 1\n"
SCHEDULER = """
Policy = Literal["fcfs", "priority"]

class SchedulerConfig:
    policy: Policy = "fcfs"
    max_num_seqs: int = Field(default=8, ge=1)

class Other:
    hidden: Literal["a"] = "a"
"""
MODEL = 'DType = Literal["auto", "half"]\n\nclass ModelConfig:\n    dtype: DType | torch.dtype = "auto"\n    load: str | DType = "auto"\n    images: InitVar[dict[str, int] | None] = None\n    more: dict[str, int] | str = ""\n'
SERVER = """
class Server:
    def launch(self):
        args = {"gpu_memory_utilization": self.config.gpu_memory_utilization, "tp": self.config.tensor_model_parallel_size, "n": 1}
"""


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineLimits:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {"config/cache.py": CACHE, "config/scheduler.py": SCHEDULER, "config/model.py": MODEL}
    vllm = source_trees.vllm(tmp_path, files)
    verl = source_trees.verl(tmp_path, "", **{"workers/rollout/vllm_rollout/vllm_async_server": SERVER})
    found = engine_limits.collect(VllmTree(vllm), VerlTrees(verl, ""))
    assert isinstance(found, EngineLimits)
    return found


def test_arguments_passed_by_verl(limits: EngineLimits) -> None:
    assert limits.handed == {
        "gpu_memory_utilization": "gpu_memory_utilization",
        "tp": "tensor_model_parallel_size",
    }


@pytest.mark.parametrize(
    ("argument", "value", "takes"),
    [
        ("gpu_memory_utilization", 0.5, ""),
        ("gpu_memory_utilization", 1, ""),
        ("gpu_memory_utilization", 0, "above 0 and at most 1"),
        ("gpu_memory_utilization", True, ""),
        ("max_num_seqs", 0, "at least 1"),
        ("scheduling_policy", "lifo", "one of fcfs, priority"),
        ("dtype", "half", ""),
        ("images", 2, "a dictionary"),
        ("images", True, ""),
        ("images", "image=2", ""),
        ("dtype", "float17", "one of auto, half"),
    ],
)
def test_rejected_values(limits: EngineLimits, argument: str, value: object, takes: str) -> None:
    found = {limit.argument: limit for limit in limits.limits}
    assert found[argument].refuses(value) == takes


def test_free_text_and_unrelated_classes_have_no_limits(limits: EngineLimits) -> None:
    assert {limit.argument for limit in limits.limits} == {"gpu_memory_utilization", "scheduling_policy", "max_num_seqs", "dtype", "images"}  # fmt: skip

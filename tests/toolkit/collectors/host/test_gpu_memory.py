"""The GPU memory for which a job is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.host.gpu_memory import GpuMemory, gpu_memory
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.target import Target

HERE = Target(Path("/env/bin/python"), "--python")
ELSEWHERE = Target(Path("/env/bin/python"), "--python", gpu_memory=80 << 30)
TWO = Resources((Gpu("NVIDIA H200", 143771), Gpu("NVIDIA H100", 81559)), 32, 1 << 38)


@pytest.mark.parametrize(
    ("target", "resources", "found"),
    [
        (HERE, TWO, GpuMemory(81559 << 20, "NVIDIA H100")),
        (ELSEWHERE, TWO, GpuMemory(80 << 30, "--gpu-memory")),
        (ELSEWHERE, Unknown("NVML hangs"), GpuMemory(80 << 30, "--gpu-memory")),
        (HERE, Unknown("NVML hangs"), Unknown("NVML hangs")),
        (HERE, Resources(None, 2, None, "NVML does not respond"), Unknown("NVML does not respond")),
    ],
)
def test_assumed_memory_beats_that_of_the_smallest_gpu(
    target: Target, resources: Resources | Unknown, found: GpuMemory | Unknown
) -> None:
    assert gpu_memory.collect(target, resources) == found


def test_error_without_gpus_names_the_option() -> None:
    found = gpu_memory.collect(HERE, Resources((), 2, None))
    assert isinstance(found, Absent)
    assert "--gpu-memory" in found.reason

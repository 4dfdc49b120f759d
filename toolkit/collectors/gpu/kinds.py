"""What kinds of NVIDIA GPUs there are: of all that NVML reports only what stays the same while they work."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import collector


@dataclass(frozen=True)
class GpuKinds:
    """The compute capabilities ("9.0") of the GPUs that answer, each once."""

    capabilities: tuple[str, ...] = ()


@collector(local=True)  # it follows from a fact that travels
def gpu_kinds(gpus: Gpus) -> GpuKinds:
    """Read them from what NVML reported. A fact that needs no more than this can be kept while memory and clocks change."""
    return GpuKinds(tuple(sorted({device.capability for device in gpus.sound if device.capability})))

"""The kinds of NVIDIA GPUs: the values of NVML that do not change while the GPUs work."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import collector


@dataclass(frozen=True)
class GpuKinds:
    """The compute capabilities ("9.0") of the GPUs that respond, each once."""

    capabilities: tuple[str, ...] = ()


@collector(local=True)  # derived from a fact that travels
def gpu_kinds(gpus: Gpus) -> GpuKinds:
    """Derive them from NVML's report.

    A fact that needs only this can be kept while memory and clocks change.
    """
    return GpuKinds(tuple(sorted({device.capability for device in gpus.sound if device.capability})))

"""The memory of each GPU for which the job is judged."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.target import Target


@dataclass(frozen=True)
class GpuMemory:
    """The smallest GPU's memory, in bytes, as `each`.

    `by` is its source: `--gpu-memory`, or the GPU of this machine.
    """

    each: int
    by: str


@collector()
def gpu_memory(target: Target, resources: Resources | Unknown) -> GpuMemory | Unknown:
    """Take the user's assumption, or else the GPUs that a job started from here would see."""
    if target.gpu_memory:
        return GpuMemory(target.gpu_memory, "--gpu-memory")
    if isinstance(resources, Unknown):
        return resources
    if resources.gpus is None:
        return Unknown(resources.why or "the GPUs of this machine are not known")
    if not resources.gpus:
        return Absent("no GPU is visible on this machine; --gpu-memory sets the memory of GPUs elsewhere")
    smallest = min(resources.gpus, key=lambda gpu: gpu.memory)
    return GpuMemory(smallest.memory << 20, smallest.name)

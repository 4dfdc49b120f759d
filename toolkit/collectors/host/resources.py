"""A job's resources: the GPUs visible to this machine, and the CPUs and memory this process may use.

Affinity and the limits of every control group count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown, collector


class Capability(NamedTuple):
    """A compute capability with the fields and the order of vLLM's DeviceCapability."""

    major: int
    minor: int

    @classmethod
    def read(cls, text: str) -> Capability:
        """Parse `9.0` into two numbers."""
        major, _, minor = text.partition(".")
        return cls(int(major), int(minor))


@dataclass(frozen=True)
class Gpu:
    """A GPU, and its memory in MiB. `capability` is its compute capability ("9.0"), empty if unknown."""

    name: str
    memory: int
    capability: str = ""


@dataclass(frozen=True)
class Resources:
    """The GPUs that a job started from here would see (`gpus`, None if unknown), and its CPUs and memory.

    `cpus` may be a fraction, `memory` is in bytes, None if the system does not report it. `why` is the reason
    why the GPUs are unknown.
    """

    gpus: tuple[Gpu, ...] | None
    cpus: float | None
    memory: int | None
    why: str = ""


@collector()
def resources(
    found: Gpus | Unknown,
    visible: VisibleDevices | Unknown,
    limits: HostLimits | Unknown,
    memory: HostMemory | Unknown,
) -> Resources:
    """Take the GPUs that CUDA_VISIBLE_DEVICES leaves, and the CPUs and memory that limits leave."""
    shell = None if isinstance(limits, Unknown) else limits.shell
    cpus = (shell.cpus if shell else None) or os.cpu_count()
    amounts = (None if isinstance(memory, Unknown) else memory.total, shell and shell.groups.memory_limit)
    allowed = min((amount for amount in amounts if amount), default=None)
    if isinstance(found, Unknown):
        return Resources(None, cpus, allowed, found.reason)
    if found.refused:
        return Resources(None, cpus, allowed, f"NVML does not respond: {found.refused}")
    left = None if isinstance(visible, Unknown) else visible.devices
    return Resources(tuple(_gpus(found.devices, left)), cpus, allowed)


def _gpus(devices: Sequence[Device], left: Sequence[int] | None) -> Iterator[Gpu]:
    """Yield the GPUs that respond. Of a MIG GPU a process sees one part."""
    for device in devices:
        if not device.trouble and (left is None or device.index in left):
            whole = device.memory.total if device.memory else 0
            part = device.mig_devices[0] if device.mig_devices else None
            yield Gpu(part.name if part else device.name, part.memory if part else whole, device.capability)

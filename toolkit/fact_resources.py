"""What this machine has for a job: GPUs that it would see, CPUs and memory as far as this process may use them.

Limits of a control group count: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max, memory.max).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from verl_doctor.toolkit.fact_gpus import Device, Gpus
from verl_doctor.toolkit.fact_visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown, collector

_UNLIMITED = 1 << 60


class Capability(NamedTuple):
    """A compute capability with the fields and the order of vLLM's DeviceCapability."""

    major: int
    minor: int

    @classmethod
    def read(cls, text: str) -> Capability:
        """`9.0` as two numbers."""
        major, _, minor = text.partition(".")
        return cls(int(major), int(minor))


@dataclass(frozen=True)
class Gpu:
    """One GPU, and its memory in MiB. `capability` is its compute capability ("9.0"), empty when it is not said."""

    name: str
    memory: int
    capability: str = ""


@dataclass(frozen=True)
class Resources:
    """`gpus` are those that a job started from here would see; None when that cannot be told.

    `cpus` may be a fraction, `memory` is in bytes, None when the system does not say. `why` says why the GPUs are not known.
    """

    gpus: tuple[Gpu, ...] | None
    cpus: float | None
    memory: int | None
    why: str = ""


@collector()
def resources(found: Gpus | Unknown, visible: VisibleDevices | Unknown) -> Resources:
    """Take the GPUs that CUDA_VISIBLE_DEVICES leaves, and ask the kernel for the rest."""
    if isinstance(found, Unknown):
        return Resources(None, _cpus(), _memory(), found.reason)
    if found.refused:
        return Resources(None, _cpus(), _memory(), f"NVML does not answer: {found.refused}")
    left = None if isinstance(visible, Unknown) else visible.devices
    return Resources(tuple(_gpus(found.devices, left)), _cpus(), _memory())


def _gpus(devices: Sequence[Device], left: Sequence[int] | None) -> Iterator[Gpu]:
    for device in devices:
        if left is None or device.index in left:
            memory = device.memory.total if device.memory else 0
            yield Gpu(device.name, memory, device.capability)


def _cpus() -> float | None:
    allowed = (
        float(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else float(os.cpu_count() or 0)
    )
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
        allowed = min(allowed, int(quota[0]) / int(quota[1]))
    return allowed or None


def _memory() -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    amounts = [int(match[1]) * 1024] if match else []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read(path).strip()
        if limit.isdigit() and int(limit) < _UNLIMITED:
            amounts.append(int(limit))
    return min(amounts, default=None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace")
    except OSError:
        return ""

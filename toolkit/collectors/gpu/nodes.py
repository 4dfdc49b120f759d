"""The device files of the NVIDIA driver: they show that GPUs exist, whatever NVML reports."""

from __future__ import annotations

import os
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.machine import Machine

_WSL = "/dev/dxg"  # one for all GPUs


@dataclass(frozen=True)
class GpuNodes:
    """The paths of the files, one per GPU; under WSL2 one for all."""

    paths: tuple[str, ...]


@collector()
def gpu_nodes(machine: Machine) -> GpuNodes | Absent:
    """List /dev."""
    found = sorted(f"/dev/{path.name}" for path in machine.at("/dev").glob("nvidia[0-9]*"))
    if not found and os.path.exists(machine.at(_WSL)) and os.path.exists(machine.at("/usr/lib/wsl")):
        found = [_WSL]
    return GpuNodes(tuple(found)) if found else Absent("there is no NVIDIA GPU here")


def has_device_nodes(machine: Machine) -> bool:
    """Return whether a device file of some GPU exists."""
    return isinstance(gpu_nodes.collect(machine), GpuNodes)

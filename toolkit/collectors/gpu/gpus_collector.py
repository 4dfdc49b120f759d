"""Collects the GPUs of this machine through NVML."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine


@collector(timeout=15)
def gpus(machine: Machine) -> Gpus | Unknown:
    """Query NVML in a child, and join the processes that it names with the process table."""
    from verl_doctor.toolkit.collectors.gpu.nvml import LIBRARY_NOT_FOUND, NO_DRIVER, query_nvml, understood  # noqa: PLC0415

    reported = query_nvml(machine)
    if isinstance(reported, Unknown):
        return reported if has_device_nodes(machine) else Absent("there is no NVIDIA GPU here")
    code, refused = reported.get("refused") or (None, "")
    if not refused:
        return understood(reported)
    if code in NO_DRIVER and not has_device_nodes(machine):
        return Absent(f"there is no NVIDIA GPU here ({refused})")
    if code == LIBRARY_NOT_FOUND:
        return Unknown(
            "there is no libnvidia-ml.so.1; a container needs the driver capability 'utility'",
            kind="no library",
        )
    return Gpus(refused=str(refused).rstrip("."))

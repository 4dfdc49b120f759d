"""NVIDIA's driver as the kernel reports it, without the library that more details would require."""

from __future__ import annotations

import os
import re

from verl_doctor.toolkit.machine import Machine

_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
_DEVICES = "/sys/bus/pci/devices"
# PCI IDs: the vendor, and the base class of display controllers, to which 3D controllers belong.
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def driver_version(machine: Machine) -> str:
    """Return the version of the driver's kernel module, "" if unknown."""
    line = re.search(r"^NVRM version:.*", machine.read("/proc/driver/nvidia/version") or "", re.MULTILINE)
    version = _VERSION.search(line[0]) if line else None
    return version[1] if version else (machine.read("/sys/module/nvidia/version") or "").strip()


def has_gpu_on_bus(machine: Machine) -> bool:
    """Return whether the kernel lists an NVIDIA GPU on the PCI bus, with or without a driver."""
    try:
        devices = os.listdir(machine.at(_DEVICES))  # noqa: PTH208 - names alone
    except OSError:
        return False
    return any(
        (machine.read(f"{_DEVICES}/{name}/vendor") or "").strip() == _NVIDIA
        and (machine.read(f"{_DEVICES}/{name}/class") or "").startswith(_DISPLAY)
        for name in devices
    )

"""Queries NVML in a child of the doctor's own interpreter, and converts its numbers to names.

Their meanings are from NVIDIA's API reference: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.gpu.gpus import (
    CONTEXT,
    Bus,
    Device,
    Fabric,
    Gpus,
    Health,
    Memory,
    MigDevice,
    Peers,
)
from verl_doctor.toolkit.collectors.gpu.holders import holders_of, openers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import nvml
from verl_doctor.toolkit.system.child import ending, run_probe

_LIMIT = 8.0  # seconds; the child gives its GPUs five
_MIB = 1024 * 1024
# nvmlReturn_t. Without a driver, or without NVML, a machine without device files has no GPU.
LIBRARY_NOT_FOUND = 12
NO_DRIVER = (9, LIBRARY_NOT_FOUND, 0)
_FABRIC = ("not supported", "not started", "in progress", "completed")
_COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")
_RECOVERY = (
    "",
    "reset the GPU",
    "reboot the node",
    "drain the peer-to-peer traffic",
    "drain and reset the GPU",
    "recover the IMEX domain",
    "reset the bus",
    "reboot the system",
)
_PEERS = (
    "ok",
    "chipset not supported",
    "GPU not supported",
    "topology not supported",
    "disabled in the registry",
    "not supported",
    "unknown",
)
_BUS_ID = re.compile(r"[0-9A-Fa-f]*([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\.\d")
_BEGINNING = re.compile(r"(?:MIG-)?(?:GPU-)?[0-9a-f]+")
# NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: the other values of such a GPU are worthless.
_LOST = (15, 16)
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Offsets of two-bit fields in the mask of fabric health; the value 1 means trouble.
_FABRIC_TROUBLES = {
    0: "degraded bandwidth",
    2: "a route in recovery",
    4: "an unhealthy route",
    6: "access timeouts",
}


def query_nvml(machine: Machine) -> dict[str, Any] | Unknown:
    """Return the child's report. Under `refused`: NVML's error number, or 0, and its text."""
    bindings = find_spec("pynvml")
    if bindings is None or bindings.origin is None:
        return Unknown("NVIDIA's bindings of NVML (nvidia-ml-py) are not installed with verl-doctor")
    result = run_probe(machine, sys.executable, nvml, str(Path(bindings.origin).parent), timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if isinstance(reported, dict):
        return reported
    by_the_driver = output.code is None or output.code < 0  # the script itself neither waits nor crashes
    if by_the_driver:
        return {"refused": (0, f"NVML was queried, and {ending(output, _LIMIT)}")}
    return Unknown(f"NVML could not be queried: {ending(output, _LIMIT)}")


def understood(reported: Mapping[str, Any]) -> Gpus:
    """Convert NVML's numbers to names."""
    devices = tuple(_device(index, gpu) for index, gpu in enumerate(reported.get("gpus", ())))
    cuda = reported.get("cuda")
    return Gpus(
        devices=devices,
        driver=str(reported.get("driver", "")),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        peers=tuple(
            Peers(first, second, _word(_PEERS, read), nvlink == 0)
            for first, second, read, nvlink in reported.get("peers", ())
        ),
        openers=openers() if any(map(_held_without_process, devices)) else (),
        seconds=round(float(reported.get("seconds", 0.0)), 3),
    )


def _held_without_process(device: Device) -> bool:
    return device.unattributed > CONTEXT and not any(holder.seen for holder in device.holders)


def _device(index: int, reported: Mapping[str, Any]) -> Device:
    complaints: Mapping[str, tuple[int | None, str]] = reported.get("errors", {})
    lost = [words for code, words in complaints.values() if "name" not in reported or code in _LOST]
    if lost or "name" not in reported or "answers" not in reported:
        return Device(
            index, str(reported.get("name", "")), trouble=lost[0] if lost else "it hangs when queried"
        )
    limit, default = reported.get("power_limit"), reported.get("power_default")
    links = reported.get("links") or []
    return Device(
        index,
        name=str(reported["name"]),
        uuid=_beginning(str(reported.get("uuid", ""))),
        capability=".".join(map(str, reported.get("capability", ()))),
        place=_place(str(reported.get("pci", ""))),
        memory=_memory(reported.get("memory")),
        health=_health(reported),
        fabric=_fabric(reported.get("fabric")),
        bus=_bus(reported),
        links=len(links),
        links_active=sum(1 for state in links if state == 1),
        slowdowns=tuple(
            name for bit, name in _SLOWDOWNS.items() if (reported.get("clock_reasons") or 0) & bit
        ),
        temperature=reported.get("temperature"),
        power_limit=limit // 1000 if limit else None,
        power_default=default // 1000 if default else None,
        persistence=bool(reported["persistence"]) if "persistence" in reported else None,
        compute_mode=_word(_COMPUTE_MODES, reported.get("compute_mode", 0)),
        mig=bool((reported.get("mig") or [0])[0]),
        mig_devices=tuple(
            MigDevice(str(name), _beginning(str(uuid)), size // _MIB)
            for name, uuid, size in reported.get("instances") or ()
        ),
        holders=holders_of(reported.get("processes") or ()),
    )


def _memory(numbers: Sequence[int | None] | None) -> Memory | None:
    if numbers is None:
        return None
    total, used, free, reserved = ((amount or 0) // _MIB for amount in numbers)
    return Memory(total, used, free, reserved)


def _health(reported: Mapping[str, Any]) -> Health:
    _, _, pending, failed = reported.get("remapped") or (None, None, None, None)
    if pending is None:  # before Ampere, pages are retired instead
        pending = reported.get("retirement_pending")
    return Health(
        ecc=bool(reported["ecc"][0]) if "ecc" in reported else None,
        uncorrected=reported.get("uncorrected"),
        uncorrected_ever=reported.get("uncorrected_ever"),
        remap_pending=None if pending is None else bool(pending),
        remap_failed=None if failed is None else bool(failed),
        recovery=_word(_RECOVERY, reported.get("recovery") or 0),
    )


def _fabric(numbers: Sequence[int] | None) -> Fabric:
    if numbers is None:
        return Fabric()
    state, status, mask = numbers
    troubles = tuple(name for shift, name in _FABRIC_TROUBLES.items() if mask >> shift & 3 == 1)
    return Fabric(_word(_FABRIC, state), status, troubles)


def _bus(reported: Mapping[str, Any]) -> Bus | None:
    if not reported.get("pcie_width") or not reported.get("pcie_width_most"):
        return None
    return Bus(
        reported["pcie_width"],
        reported["pcie_width_most"],
        reported.get("pcie_generation", 0),
        reported.get("pcie_generation_most", 0),
    )


def _word(words: Sequence[str], number: int | None) -> str:
    return words[number] if number is not None and 0 <= number < len(words) else f"unknown ({number})"


def _place(bus_id: str) -> str:
    """Domain, bus and device: "00000000:C6:00.0" gives "0000:c6:00"."""
    match = _BUS_ID.fullmatch(bus_id)
    return f"{match[1]}:{match[2]}".lower() if match else ""


def _beginning(uuid: str) -> str:
    """Return the kind and the first of a UUID's five groups: "GPU-8932f937-d72c-..." gives "GPU-8932f937"."""
    match = _BEGINNING.match(uuid)
    return match[0] if match else ""

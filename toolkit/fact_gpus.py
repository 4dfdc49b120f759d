"""The NVIDIA GPUs of this machine as NVML sees them: memory and who holds it, health, links, modes.

NVML is asked in a child of the doctor's own interpreter (`child_nvml`). What its numbers mean is from NVIDIA's API reference:
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.fact_gpu_holders import Holder, holders_of, openers
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

CONTEXT = 1024  # MiB: what is less may be the remainder of a driver, a display or an empty CUDA context
_LIMIT = 8.0  # seconds; the child gives its GPUs five
_MIB = 1024 * 1024
# nvmlReturn_t. The library without a driver is what a CPU image made for GPUs has.
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND = 9, 12
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
# NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: the other answers of such a GPU are worth nothing.
_LOST = (15, 16)
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Places of two bits in the mask of fabric health; 1 there is the bad news.
_FABRIC_TROUBLES = {
    0: "degraded bandwidth",
    2: "a route in recovery",
    4: "an unhealthy route",
    6: "access timeouts",
}


@dataclass(frozen=True)
class Memory:
    """Memory of a GPU in MiB. `reserved` is what the driver keeps for itself, a part of `total` and not of `used`."""

    total: int
    used: int
    free: int
    reserved: int = 0

    @property
    def usable(self) -> int:
        """What CUDA calls the total memory."""
        return self.total - self.reserved


@dataclass(frozen=True)
class Health:
    """What NVML counts and remembers of errors; None where this GPU does not count.

    `uncorrected` are memory errors since the driver was loaded, `uncorrected_ever` since the GPU was made. `remap_pending`:
    bad memory is replaced at the next reset; `remap_failed`: it could not be. `recovery` is what the driver wants done.
    """

    ecc: bool | None = None
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery: str = ""


@dataclass(frozen=True)
class Fabric:
    """The GPU's registration with the NVSwitch fabric.

    `state`: "not supported", "not started", "in progress" or "completed". `status` is NVML's number, 0 for success.
    `troubles` are those of its health, where the driver tells it.
    """

    state: str = "not supported"
    status: int = 0
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bus:
    """The PCIe link now, and the most that card and slot allow. An idle GPU lowers the generation, never the width."""

    width: int
    width_most: int
    generation: int = 0
    generation_most: int = 0


@dataclass(frozen=True)
class MigDevice:
    """One MIG device: a part of a GPU. `memory` is in MiB, `uuid` as of `Device`."""

    name: str
    uuid: str
    memory: int


@dataclass(frozen=True)
class Device:
    """One GPU.

    `uuid` is the beginning of its UUID, such as "GPU-8932f937": enough for CUDA_VISIBLE_DEVICES, and no identity. `trouble`
    is why NVML cannot tell anything, and everything else is empty then. `capability` is "9.0", `place`
    that on the PCI bus as the kernel writes it, "0000:c6:00". `slowdowns` are the reasons
    for which its clocks are throttled at this moment, other than to save power. Power is in watts, `temperature` in degrees
    Celsius. `compute_mode`: "default", "exclusive process", "prohibited". `links` and `links_active` count NVLinks.
    `holders` are the processes that compute on it, `mig_devices` the parts it is divided into while `mig` is on.
    """

    index: int
    name: str = ""
    uuid: str = ""
    capability: str = ""
    place: str = ""
    memory: Memory | None = None
    health: Health = field(default_factory=Health)
    fabric: Fabric = field(default_factory=Fabric)
    bus: Bus | None = None
    links: int = 0
    links_active: int = 0
    slowdowns: tuple[str, ...] = ()
    temperature: int | None = None
    power_limit: int | None = None
    power_default: int | None = None
    persistence: bool | None = None
    compute_mode: str = "default"
    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    holders: tuple[Holder, ...] = ()
    trouble: str = ""

    @property
    def unattributed(self) -> int:
        """MiB in use that belong to no process that is seen from here: another container's, or a dead one's."""
        used = self.memory.used if self.memory else 0
        return max(0, used - sum(holder.memory or 0 for holder in self.holders))


@dataclass(frozen=True)
class Peers:
    """Two GPUs by number, and whether they read each other's memory: "ok" or why not. `nvlink`: over NVLink."""

    first: int
    second: int
    read: str
    nvlink: bool = False


@dataclass(frozen=True)
class Gpus:
    """All NVIDIA GPUs, whatever CUDA_VISIBLE_DEVICES hides. `cuda` is the newest CUDA that the driver serves: "13.0".

    `refused` is what NVML said when it would not start although there are devices: there are no `devices` then. `seconds` is
    how long it took to open the driver. `openers` are processes that have some GPU open, looked for only where NVML names
    none for memory that is in use.
    """

    devices: tuple[Device, ...] = ()
    driver: str = ""
    cuda: str = ""
    peers: tuple[Peers, ...] = ()
    refused: str = ""
    seconds: float = 0.0
    openers: tuple[Holder, ...] = ()

    @property
    def sound(self) -> tuple[Device, ...]:
        """Those that answer."""
        return tuple(device for device in self.devices if not device.trouble)


@collector(timeout=15)
def gpus(machine: Machine) -> Gpus | Unknown:
    """Let a child ask NVML, and join the processes that it names with the table of processes."""
    nodes = has_device_nodes(machine)
    told = _ask(machine)
    if isinstance(told, str):
        if not nodes:
            return Absent("there is no NVIDIA GPU here")
        return Gpus(refused=told)
    refused = told.get("refused")
    if refused:
        code, words = refused
        if code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND) and not nodes:
            return Absent(f"there is no NVIDIA GPU here (NVML: {words})")
        if code == _LIBRARY_NOT_FOUND:
            return Unknown(
                "there are NVIDIA devices, but no libnvidia-ml.so.1 to ask about them: a container needs the driver "
                "capability 'utility'"
            )
        return Gpus(refused=str(words).rstrip("."))
    return _understood(told)


def has_device_nodes(machine: Machine) -> bool:
    """Whether the driver has made a device file for some GPU. WSL2 has one for the GPUs of all makers, and the library."""
    found = machine.at("/dev").glob("nvidia[0-9]*")
    return any(found) or (
        machine.at("/dev/dxg").exists() and any(machine.at("/usr/lib/wsl/lib").glob("libcuda.so*"))
    )


def _ask(machine: Machine) -> dict[str, Any] | str:
    """What the child found, or in words why it found nothing."""
    from importlib.util import find_spec  # noqa: PLC0415

    from verl_doctor.toolkit import child_nvml  # noqa: PLC0415

    bindings = find_spec("pynvml")
    if bindings is None or bindings.origin is None:
        return "NVIDIA's bindings of NVML (nvidia-ml-py) are not installed beside the doctor"
    token = f"verl-doctor {secrets.token_hex(8)} "
    text = Path(child_nvml.__file__).read_text("utf-8")
    try:
        answer = machine.run(
            [sys.executable, "-c", text, token, str(Path(bindings.origin).parent)], timeout=_LIMIT
        )
    except OSError as error:
        return f"{sys.executable} cannot be started: {error.strerror}"
    if answer.code is None:
        return f"NVML did not answer within {_LIMIT:.0f} s"
    _, found, rest = answer.stdout.rpartition(token)
    try:
        told = json.loads(rest.partition("\n")[0]) if found else None
    except ValueError:
        told = None
    if not isinstance(told, dict):
        died = f"a process that asks NVML is ended by signal {-answer.code}" if answer.code < 0 else ""
        return died or f"NVML could not be asked: {answer.said[:200]}"
    return told


def _understood(told: Mapping[str, Any]) -> Gpus:
    """Give NVML's numbers their names."""
    devices = tuple(_device(index, one) for index, one in enumerate(told.get("gpus", ())))
    cuda = told.get("cuda")
    return Gpus(
        devices=devices,
        driver=str(told.get("driver", "")),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        peers=tuple(
            Peers(first, second, _word(_PEERS, read), nvlink == 0)
            for first, second, read, nvlink in told.get("peers", ())
        ),
        openers=openers() if any(map(_held_by_nobody, devices)) else (),
        seconds=round(float(told.get("seconds", 0.0)), 3),
    )


def _held_by_nobody(device: Device) -> bool:
    return device.unattributed > CONTEXT and not any(holder.seen for holder in device.holders)


def _device(index: int, told: Mapping[str, Any]) -> Device:
    complaints: Mapping[str, tuple[int, str]] = told.get("errors", {})
    lost = [words for code, words in complaints.values() if "name" not in told or code in _LOST]
    if lost or "name" not in told:
        return Device(index, str(told.get("name", "")), trouble=lost[0] if lost else "it does not answer")
    limit, default = told.get("power_limit"), told.get("power_default")
    links = told.get("links") or []
    return Device(
        index,
        name=str(told["name"]),
        uuid=_beginning(str(told.get("uuid", ""))),
        capability=".".join(map(str, told.get("capability", ()))),
        place=_place(str(told.get("pci", ""))),
        memory=_memory(told.get("memory")),
        health=_health(told),
        fabric=_fabric(told.get("fabric")),
        bus=_bus(told),
        links=len(links),
        links_active=sum(1 for state in links if state == 1),
        slowdowns=tuple(name for bit, name in _SLOWDOWNS.items() if (told.get("clock_reasons") or 0) & bit),
        temperature=told.get("temperature"),
        power_limit=limit // 1000 if limit else None,
        power_default=default // 1000 if default else None,
        persistence=bool(told["persistence"]) if "persistence" in told else None,
        compute_mode=_word(_COMPUTE_MODES, told.get("compute_mode", 0)),
        mig=bool((told.get("mig") or [0])[0]),
        mig_devices=tuple(
            MigDevice(str(name), _beginning(str(uuid)), size // _MIB)
            for name, uuid, size in told.get("instances") or ()
        ),
        holders=holders_of(told.get("processes") or ()),
    )


def _memory(told: Sequence[int | None] | None) -> Memory | None:
    if told is None:
        return None
    total, used, free, reserved = ((amount or 0) // _MIB for amount in told)
    return Memory(total, used, free, reserved)


def _health(told: Mapping[str, Any]) -> Health:
    _, _, pending, failed = told.get("remapped") or (None, None, None, None)
    if pending is None:  # before Ampere, pages are retired instead
        pending = told.get("retirement_pending")
    return Health(
        ecc=bool(told["ecc"][0]) if "ecc" in told else None,
        uncorrected=told.get("uncorrected"),
        uncorrected_ever=told.get("uncorrected_ever"),
        remap_pending=None if pending is None else bool(pending),
        remap_failed=None if failed is None else bool(failed),
        recovery=_word(_RECOVERY, told.get("recovery") or 0),
    )


def _fabric(told: Sequence[int] | None) -> Fabric:
    if told is None:
        return Fabric()
    state, status, mask = told
    troubles = tuple(name for shift, name in _FABRIC_TROUBLES.items() if mask >> shift & 3 == 1)
    return Fabric(_word(_FABRIC, state), status, troubles)


def _bus(told: Mapping[str, Any]) -> Bus | None:
    if not told.get("pcie_width") or not told.get("pcie_width_most"):
        return None
    return Bus(
        told["pcie_width"],
        told["pcie_width_most"],
        told.get("pcie_generation", 0),
        told.get("pcie_generation_most", 0),
    )


def _word(words: Sequence[str], number: int | None) -> str:
    return words[number] if number is not None and 0 <= number < len(words) else f"unknown ({number})"


def _place(bus_id: str) -> str:
    """Domain, bus and device: "00000000:C6:00.0" gives "0000:c6:00"."""
    match = _BUS_ID.fullmatch(bus_id)
    return f"{match[1]}:{match[2]}".lower() if match else ""


def _beginning(uuid: str) -> str:
    """The kind and the first of a UUID's five groups: "GPU-8932f937-d72c-..." gives "GPU-8932f937"."""
    match = _BEGINNING.match(uuid)
    return match[0] if match else ""

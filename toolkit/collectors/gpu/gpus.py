"""The NVIDIA GPUs of this machine as NVML reports them: memory and its holders, health, links, modes."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.gpu.holders import Holder

CONTEXT = 1024  # MiB; less may be driver overhead, a display or an empty CUDA context


@dataclass(frozen=True)
class Memory:
    """Memory of a GPU in MiB.

    `reserved` is what the driver keeps for itself, a part of `total` and not of `used`.
    """

    total: int
    used: int
    free: int
    reserved: int = 0

    @property
    def usable(self) -> int:
        """The total memory as CUDA reports it."""
        return self.total - self.reserved


@dataclass(frozen=True)
class Health:
    """The errors that NVML counts and records; None if this GPU does not count them.

    `uncorrected` are memory errors since the driver was loaded, `uncorrected_ever` since the GPU was made.
    `remap_pending`: bad memory is replaced at the next reset; `remap_failed`: it could not be replaced.
    `recovery` is the action that the driver recommends.
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

    `state`: "not supported", "not started", "in progress" or "completed". `status` is NVML's number, 0 for
    success. `troubles` are its health problems, if the driver reports them.
    """

    state: str = "not supported"
    status: int = 0
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bus:
    """The present PCIe link, and the maximum of card and slot.

    An idle GPU lowers the generation, never the width.
    """

    width: int
    width_most: int
    generation: int = 0
    generation_most: int = 0


@dataclass(frozen=True)
class MigDevice:
    """A MIG device: a part of a GPU. `memory` is in MiB, `uuid` as in `Device`."""

    name: str
    uuid: str
    memory: int


@dataclass(frozen=True)
class Device:
    """An NVIDIA GPU.

    `uuid` is the beginning of its UUID, such as "GPU-8932f937": enough for CUDA_VISIBLE_DEVICES, but not the
    full identity. `trouble` is why NVML reports nothing, and everything else is empty then. `capability` is
    "9.0", `place` its PCI address as the kernel writes it, "0000:c6:00". `slowdowns` are the reasons for
    which its clocks are throttled at this moment, other than to save power. Power is in watts, `temperature`
    in degrees Celsius. `compute_mode`: "default", "exclusive process", "prohibited". `links` and
    `links_active` count NVLinks. `holders` are the processes that hold its memory, `mig_devices` its parts
    while `mig` is on.
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
        """MiB in use by no process visible from here: another container's, or a dead process's."""
        used = self.memory.used if self.memory else 0
        return max(0, used - sum(holder.memory or 0 for holder in self.holders))


@dataclass(frozen=True)
class Peers:
    """Two GPUs by number, and whether they read each other's memory: "ok" or why not.

    `nvlink`: over NVLink.
    """

    first: int
    second: int
    read: str
    nvlink: bool = False


@dataclass(frozen=True)
class Gpus:
    """All NVIDIA GPUs, whatever CUDA_VISIBLE_DEVICES hides.

    `cuda` is the newest CUDA that the driver supports: "13.0".

    `refused` is NVML's error if it did not start although there are devices: `devices` is empty then.
    `seconds` is how long it took to open the driver. `openers` are processes that have some GPU open,
    searched for only if NVML names none for memory that is in use.
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
        """The GPUs that respond."""
        return tuple(device for device in self.devices if not device.trouble)

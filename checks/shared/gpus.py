"""Shared by the rules about GPUs: which the job uses, their names in messages, healthy GPUs for examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from verl_doctor.toolkit.collectors.gpu.gpus import Bus, Device, Fabric, Gpus, Health, Memory
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Subject
from verl_doctor.toolkit.text import ranges

K = TypeVar("K")

NVML = "NVML"
_H200 = Device(
    0,
    name="NVIDIA H200",
    uuid="GPU-0123abcd",
    capability="9.0",
    memory=Memory(total=143771, used=0, free=143155, reserved=616),
    health=Health(ecc=True, uncorrected=0, uncorrected_ever=0, remap_pending=False, remap_failed=False),
    fabric=Fabric("completed"),
    bus=Bus(width=16, width_most=16, generation=5, generation_most=5),
    links=18,
    links_active=18,
    temperature=39,
    power_limit=700,
    power_default=700,
    persistence=True,
)


def healthy(index: int = 0, **changes: Any) -> Device:
    """An H200 of a node with eight GPUs, for examples."""
    return replace(_H200, index=index, **changes)


def node(*devices: Device, **changes: Any) -> Gpus:
    """A machine with these GPUs, for examples; with eight healthy ones if none is given."""
    return Gpus(devices or tuple(map(healthy, range(8))), driver="580.159.04", cuda="13.0", **changes)


def of_job(gpus: Gpus, visible: VisibleDevices | Unknown) -> tuple[Device, ...]:
    """The responding GPUs that are visible to the job."""
    seen = None if isinstance(visible, Unknown) else visible.devices
    return tuple(device for device in gpus.sound if seen is None or device.index in seen)


def of_laptop(device: Device) -> bool:
    """Whether this is a laptop GPU, which slows down, sleeps and drops lanes by design."""
    return any(word in device.name for word in ("Laptop", "Max-Q", "Mobile"))


def named(devices: Sequence[Device]) -> str:
    """The GPUs by number: "GPU 3", "GPUs 0, 1", "GPUs 0-7"."""
    return f"GPU{'' if len(devices) == 1 else 's'} {ranges(device.index for device in devices)}"


def about(devices: Iterable[Device], detail: str = "") -> Subject:
    """The GPUs as the subject of a finding, each by its number."""
    return Subject("device", ",".join(str(device.index) for device in devices), detail)


def alike(devices: Iterable[Device], what: Callable[[Device], K]) -> dict[K, list[Device]]:
    """The GPUs grouped by a common property, to report it only once."""
    found: dict[K, list[Device]] = {}
    for device in devices:
        found.setdefault(what(device), []).append(device)
    return found


def gib(mebibytes: float) -> str:
    """An amount of MiB in GiB: "15.9 GiB"."""
    return f"{mebibytes / 1024:.1f} GiB"

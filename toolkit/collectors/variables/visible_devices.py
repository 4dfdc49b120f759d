"""Which GPUs CUDA_VISIBLE_DEVICES leaves to the job, wherever it is set.

CUDA accepts entries up to the first that names no GPU, and none at all if one is repeated:
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html,
pytorch/pytorch torch/cuda/__init__.py (_parse_visible_devices).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_NUMBER = re.compile(r"\s*(\d+)")
_UUID = re.compile(r"((?:MIG-)?(?:GPU-)?[0-9a-f]{8})(?:-[0-9a-f]+){4}")


@dataclass(frozen=True)
class Choice:
    """One value of the variable and the GPUs that it leaves, by their numbers and in its order.

    `stops_at` is the first entry that names no GPU of this machine; it and all later entries are ignored.
    `repeated` is an entry that occurs twice, `cut` one of which CUDA parses only the leading number ("0 1").
    `path` and `line` are where a launch file sets it, `raylet` is the number of the raylet that has it;
    neither is given for the shell. UUIDs are shortened.
    """

    value: str
    devices: tuple[int, ...] = ()
    stops_at: str | None = None
    repeated: str | None = None
    cut: str | None = None
    path: str = ""
    line: int = 0
    raylet: int = 0


@dataclass(frozen=True)
class VisibleDevices:
    """`devices` are the numbers of the GPUs that a job started from here would see, by `choice`.

    There is no `choice` if the variable is not set, or the launch files set it to an unknown value.

    `raylets` are the choices of the raylets that run here: Ray shares those GPUs out among the workers that
    it starts.
    """

    devices: tuple[int, ...]
    choice: Choice | None = None
    raylets: tuple[Choice, ...] = ()


@collector()
def visible_devices(
    gpus: Gpus, machine: Machine, launch: Launch | Unknown, raylets: Raylets | Unknown
) -> VisibleDevices:
    """Read the shell's value, the launch files' values, of which the last counts, and the raylets' values."""
    own: Choice | None = None
    if VISIBLE_DEVICES in machine.environ:
        own = chosen(machine.environ[VISIBLE_DEVICES], gpus.devices)
    for setting in () if isinstance(launch, Unknown) else launch.settings:
        if setting.name == VISIBLE_DEVICES and not setting.conditional:
            own = None
            if setting.value is not None:
                own = replace(chosen(setting.value, gpus.devices), path=setting.path, line=setting.line)
    running = () if isinstance(raylets, Unknown) else raylets.running
    return VisibleDevices(
        own.devices if own else tuple(device.index for device in gpus.devices),
        own,
        tuple(
            replace(chosen(raylet.variables.values[VISIBLE_DEVICES], gpus.devices), raylet=raylet.pid)
            for raylet in running
            if VISIBLE_DEVICES in raylet.variables.values
        ),
    )


def chosen(value: str, devices: Sequence[Device]) -> Choice:
    """Return what CUDA makes of a value here.

    A process sees one part of a divided GPU, however many are named.
    """
    shown = _UUID.sub(r"\1", value)
    found: dict[str, int] = {}
    cut = None
    for entry in value.split(",") if value.strip() else ():
        index = _named(entry, devices)
        word = entry.strip() if entry.strip().startswith(("GPU-", "MIG-")) else str(index)
        if index is None:
            return Choice(shown, _once(found.values()), stops_at=_UUID.sub(r"\1", entry.strip()))
        if word in found:
            return Choice(shown, (), repeated=_UUID.sub(r"\1", entry.strip()))
        found[word] = index
        number = _NUMBER.match(entry)
        cut = entry.strip() if number and entry[number.end() :].strip() else cut
    return Choice(shown, _once(found.values()), cut=cut)


def _named(entry: str, devices: Sequence[Device]) -> int | None:
    """Return the number of the GPU that an entry names, whole or in part; None if it names none."""
    number = _NUMBER.match(entry)
    if number is not None:
        return int(number[1]) if int(number[1]) < len(devices) else None
    word = entry.strip()
    for device in devices:
        uuids = (device.uuid, *(part.uuid for part in device.mig_devices))
        if any(uuid and _same(word, uuid) for uuid in uuids):
            return device.index
    return None


def _same(word: str, beginning: str) -> bool:
    """Return whether a UUID, or the beginning of one, may match the known beginning."""
    return word.startswith(beginning) or (len(word) > len("GPU-") and beginning.startswith(word))


def _once(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))

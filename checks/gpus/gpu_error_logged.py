"""CUDA143: the driver has logged a hardware error of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from verl_doctor.checks.shared.gpus import healthy, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.gpu.xid import Xid, Xids
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

# Those for which NVIDIA's catalogue recommends at least a GPU reset, and 94, after which memory is replaced;
# as of 2026-11: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. 13, 31, 43, 45 and the
# like are mostly a program's own fault.
_HARDWARE = {
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    54: "the GPU's power cable is not connected",
    62: "the GPU's internal controller stopped",
    64: "faulty memory could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "memory error that ended one program",
    95: "memory error that may have reached other programs",
    109: "a context switch timed out",
    110: "security fault",
    119: "the GPU's system processor (GSP) does not respond",
    120: "the GPU's system processor (GSP) failed",
    136: "NVLink training failed",
    140: "unrecovered memory error",
    143: "the GPU could not be initialised",
    **dict.fromkeys(range(144, 151), "NVLink error"),
    155: "NVLink error",
    156: "part of the GPU was disabled",
    158: "the GPU timed out fatally",
}
_RECENT = 24 * 3600.0
_ALL = VisibleDevices(tuple(range(8)))
_NODE = node(healthy(place="0000:c6:00"), healthy(1, place="0000:c7:00"))


def _examples() -> list[Example]:
    return [
        Example("an empty log", (Xids(), _NODE, _ALL)),
        Example(
            "a program's own mistake",
            (
                Xids(
                    (
                        Xid(number=31, place="0000:c6:00", age=60.0),
                        Xid(number=43, place="0000:c6:00", age=60.0),
                    )
                ),
                _NODE,
                _ALL,
            ),
        ),
        Example(
            "an NVLink that recovered",
            (Xids((Xid(number=149, place="0000:c6:00", age=60.0, nonfatal=True),)), _NODE, _ALL),
        ),
        Example(
            "of a GPU that the job does not use",
            (Xids((Xid(number=79, place="0000:c7:00", age=60.0),)), _NODE, VisibleDevices((0,))),
        ),
        Example(
            "a GPU has fallen off the bus",
            (Xids((Xid(number=79, place="0000:c6:00", age=7200.0),)), _NODE, _ALL),
            "GPU 0: the GPU has fallen off the bus (Xid 79), 2.0 h ago",
        ),
        Example(
            "an error that recurs",
            (
                Xids(
                    (
                        Xid(number=74, place="0000:c7:00", age=900.0),
                        Xid(number=74, place="0000:c7:00", age=60.0),
                    )
                ),
                _NODE,
                _ALL,
            ),
            "2 times",
        ),
    ]


@check("CUDA143", severity="warning", requires={"CUDA140"}, examples=_examples)
def gpu_error_logged(xids: Xids, gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """The driver has logged a hardware error of a GPU.

    ## Why it matters

    An Xid is the driver's own record of what a job only sees as `CUDA error: unknown error`, `uncorrectable
    ECC error encountered` or a collective that never ends. This rule reports only those that come from the
    GPU, its memory or its links; they recur.

    ## How to fix

    Reset the GPU while nothing uses it (`nvidia-smi --gpu-reset -i N`, as root) or reboot. If it happens
    again, have the hardware checked; if the machine is rented, use another one. Until then exclude the GPU
    with CUDA_VISIBLE_DEVICES.
    """
    places = {device.place: device.index for device in of_job(gpus, visible) if device.place}
    errors = [
        error
        for error in xids.errors
        if error.number in _HARDWARE and error.place in places and not error.nonfatal
    ]
    errors.sort(key=lambda error: (places[error.place], error.number, -(error.age or 0)))
    for (place, number), same in groupby(errors, key=lambda error: (error.place, error.number)):
        every = list(same)
        age = every[-1].age
        yield Finding(
            f"GPU {places[place]}: {_HARDWARE[number]} (Xid {number}), {_ago(age)}"
            + (f", {len(every)} times" if len(every) > 1 else ""),
            Evidence(found=f"NVRM: Xid (PCI:{place}): {number}", wanted="none", read_from="the kernel's log"),
            remedy="reset the GPU while nothing uses it, or reboot; if it happens again, have it replaced",
            severity="info" if age is not None and age > _RECENT else None,
            subject=Subject("device", str(places[place]), f"Xid {number}"),
        )


def _ago(age: float | None) -> str:
    if age is None:
        return "since the machine booted"
    if age < 3600:
        return f"{age / 60:.0f} min ago"
    return f"{age / 3600:.1f} h ago" if age < _RECENT else f"{age / 86400:.0f} days ago"

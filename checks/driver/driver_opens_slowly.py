"""CUDA150: the driver initialises the GPUs again for each program."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, healthy, named, node, of_laptop
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_SLOW = 1.0  # seconds; with persistence mode it is a few hundredths


def _examples() -> list[Example]:
    return [
        Example("persistence mode", (node(seconds=0.03),)),
        Example(
            "persistence mode is off, but another program keeps the GPUs open",
            (node(healthy(persistence=False), seconds=0.04),),
        ),
        Example("many GPUs that take long although persistence mode is on", (node(seconds=1.4),)),
        Example(
            "a laptop, whose GPU sleeps",
            (node(healthy(name="NVIDIA GeForce RTX 4070 Laptop GPU", persistence=False), seconds=1.9),),
        ),
        Example("persistence mode is off", (node(healthy(persistence=False), seconds=2.31),), "2.3 s"),
    ]


@check("CUDA150", severity="info", requires={"CUDA140"}, examples=_examples)
def driver_opens_slowly(gpus: Gpus) -> Iterator[Finding]:
    """The driver initialises the GPUs again for each program.

    ## Why it matters

    Without persistence mode the driver unloads a GPU's state when the last program on it ends. The first
    program of each job, and every short one in between, waits until the GPU is initialised again.

    ## How to fix

    As root, run `nvidia-smi -pm 1` or nvidia-persistenced.
    """
    off = [device for device in gpus.sound if device.persistence is False and not of_laptop(device)]
    if off and gpus.seconds >= _SLOW:
        yield Finding(
            f"opening the driver took {gpus.seconds:.1f} s: persistence mode is off for {named(off)}",
            Evidence(found="persistence mode off", wanted="on", read_from=f"{NVML}, driver {gpus.driver}"),
            remedy="run as root: nvidia-smi -pm 1",
            subject=about(off),
        )

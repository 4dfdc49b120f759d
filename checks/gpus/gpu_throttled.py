"""CUDA144: a GPU is slowed down by heat, by its power supply or by a power limit."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node, of_job, of_laptop
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_LOW = 0.9  # of the default power limit
_ALL = VisibleDevices(tuple(range(8)))


def _examples() -> list[Example]:
    return [
        Example("idle", (node(), _ALL)),
        Example("a limit a little below the default", (node(healthy(power_limit=650)), _ALL)),
        Example(
            "a laptop on its battery",
            (
                node(
                    healthy(
                        name="NVIDIA GeForce RTX 4070 Laptop GPU", slowdowns=("power brake",), power_limit=35
                    )
                ),
                _ALL,
            ),
        ),
        Example(
            "too hot",
            (
                node(healthy(slowdowns=("hardware slowdown", "hardware thermal slowdown"), temperature=91)),
                _ALL,
            ),
            "GPU 0 is slowed down (hardware slowdown, hardware thermal slowdown), at 91 degrees",
        ),
        Example(
            "the power supply slows it down", (node(healthy(slowdowns=("power brake",))), _ALL), "power brake"
        ),
        Example(
            "all of a node",
            (
                node(
                    *(
                        healthy(number, slowdowns=("power brake",), temperature=40 + number)
                        for number in range(8)
                    )
                ),
                _ALL,
            ),
            "GPUs 0-7 are slowed down (power brake), at 47 degrees",
        ),
        Example(
            "a power limit of half",
            (node(healthy(power_limit=350), healthy(1, power_limit=350)), _ALL),
            "GPUs 0, 1 are limited to 350 W of 700 W",
        ),
    ]


@check("CUDA144", severity="warning", requires={"CUDA140"}, examples=_examples)
def gpu_throttled(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """A GPU is throttled by heat, by its power supply or by a power limit.

    ## Why it matters

    All ranks wait for the slowest in each step. A hardware slowdown halves the clock or worse, and an idle
    GPU that shows one lacks cooling or power. This was measured just now: a GPU that overheats only under
    load is not detected while it is idle.

    ## How to fix

    Ask the owner of the machine to check fans, airflow, power supplies and the power limit (`nvidia-smi -q -d
    PERFORMANCE,POWER`). Until then exclude the GPU with CUDA_VISIBLE_DEVICES, or use another machine. A power
    limit is often intentional, and then only explains the speed.
    """
    mine = [device for device in of_job(gpus, visible) if not of_laptop(device)]
    read_from = f"{NVML}, driver {gpus.driver}"
    for slowdowns, devices in alike(mine, lambda device: device.slowdowns).items():
        if slowdowns:
            reasons = ", ".join(slowdowns)
            hottest = max((device.temperature or 0 for device in devices), default=0)
            yield Finding(
                f"{named(devices)} {'is' if len(devices) == 1 else 'are'} slowed down ({reasons})"
                + (f", at {hottest} degrees Celsius" if hottest else ""),
                Evidence(found=reasons, wanted="no slowdown except to save power", read_from=read_from),
                remedy="have cooling and power supply checked, or exclude it with CUDA_VISIBLE_DEVICES",
                subject=about(devices, "slowdown"),
            )
    low = [device for device in mine if _is_limited(device)]
    if low:
        yield Finding(
            (
                f"{named(low)} {'is' if len(low) == 1 else 'are'} limited to {low[0].power_limit} W of "
                f"{low[0].power_default} W"
            ),
            Evidence(
                found=f"{low[0].power_limit} W", wanted=f"{low[0].power_default} W", read_from=read_from
            ),
            remedy=(
                "raise the limit as root (nvidia-smi -pl) if the GPU should be as fast as others of its kind"
            ),
            severity="info",
            subject=about(low, "power limit"),
        )


def _is_limited(device: Device) -> bool:
    return bool(device.power_limit and device.power_default) and (
        (device.power_limit or 0) < _LOW * (device.power_default or 0)
    )

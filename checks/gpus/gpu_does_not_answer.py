"""CUDA155: a GPU does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_LOST = Device(1, trouble="GPU is lost")


def _examples() -> list[Example]:
    return [
        Example("eight that answer", (node(),)),
        Example("a GPU that is lost", (node(healthy(), _LOST),), "GPU 1 does not respond: GPU is lost"),
        Example(
            "several are lost",
            (node(healthy(), *(replace(_LOST, index=number) for number in range(1, 8))),),
            "GPUs 1-7 do not respond: GPU is lost",
        ),
        Example("the only GPU hangs", (node(Device(0, trouble="it hangs")),), "GPU 0 does not respond"),
    ]


@check("CUDA155", phase="workers", requires={"CUDA140"}, examples=_examples)
def gpu_does_not_answer(gpus: Gpus) -> Iterator[Finding]:
    """A GPU does not respond.

    ## Why it matters

    Every process that touches a GPU that is lost ("fallen off the bus") or needs a reset fails, and calls for
    other GPUs often hang too. Jobs that use all GPUs stop, and Ray may still count it.

    ## How to fix

    Ask the administrator of the machine: look for "NVRM" in the kernel's log, reset the GPU (`nvidia-smi
    --gpu-reset -i N`, while nothing uses it), or reboot. If the machine is rented, use another one. Until
    then, use the other GPUs: list them in CUDA_VISIBLE_DEVICES.
    """
    others = ",".join(str(device.index) for device in gpus.sound)
    for trouble, devices in alike(gpus.devices, lambda device: device.trouble).items():
        if trouble:
            yield Finding(
                f"{named(devices)} {'does' if len(devices) == 1 else 'do'} not respond: {trouble}",
                Evidence(found=trouble, wanted="a response", read_from=f"{NVML}, driver {gpus.driver}"),
                remedy="reset the GPU or reboot"
                + (f"; until then exclude it: CUDA_VISIBLE_DEVICES={others}" if others else ""),
                subject=about(devices),
            )

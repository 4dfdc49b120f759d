"""CUDA155: a GPU does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_LOST = Device(1, trouble="GPU is lost")


@check(
    "CUDA155",
    phase="workers",
    requires={"CUDA140"},
    examples=lambda: [
        Example("eight that answer", (node(),)),
        Example("a GPU that is lost", (node(healthy(), _LOST),), "GPU 1 does not answer: GPU is lost"),
        Example(
            "several are lost",
            (node(healthy(), *(replace(_LOST, index=number) for number in range(1, 8))),),
            "GPUs 1-7 do not answer: GPU is lost",
        ),
        Example(
            "the only GPU hangs", (node(Device(0, trouble="it does not answer")),), "GPU 0 does not answer"
        ),
    ],
)
def gpu_does_not_answer(gpus: Gpus) -> Iterator[Finding]:
    """A GPU does not respond.

    ## Why it matters

    A GPU that is lost (it has "fallen off the bus"), or that needs a restart, fails every process that touches it, and often
    makes the calls for its neighbours hang. Jobs that use all GPUs stop, and Ray may still count it.

    ## How to fix

    It needs the administrator of the machine: look for "NVRM" in the kernel's log, reset the GPU
    (`nvidia-smi --gpu-reset -i N`, when nothing uses it), reboot. On a rented machine take another one. Until then the others
    can be used: name them in CUDA_VISIBLE_DEVICES.
    """
    others = ",".join(str(device.index) for device in gpus.sound)
    for trouble, devices in alike(gpus.devices, lambda device: device.trouble).items():
        if trouble:
            yield Finding(
                f"{named(devices)} {'does' if len(devices) == 1 else 'do'} not answer: {trouble}",
                Evidence(found=trouble, wanted="an answer", read_from=f"{NVML}, driver {gpus.driver}"),
                remedy="reset or reboot"
                + (f"; until then leave out what is lost: CUDA_VISIBLE_DEVICES={others}" if others else ""),
                subject=about(devices),
            )

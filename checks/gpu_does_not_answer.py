"""CUDA140: the driver, or one of the GPUs, does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._gpus import NVML, healthy, node
from verl_doctor.toolkit.fact_gpus import Device, Gpus
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, check

# By NVML's words. A container loses its devices when systemd is reloaded: NVIDIA/nvidia-container-toolkit#48.
_REMEDIES = {
    "version mismatch": "the driver's libraries and its kernel module are of different versions: reboot",
    "Unknown Error": "in a container: start it anew, it has lost its devices; else look for NVRM in dmesg",
    "Permissions": "this user, or this container, may not open /dev/nvidia*: ls -l /dev/nvidia*",
    "Driver Not Loaded": "load the kernel module: modprobe nvidia; it may lack a build for this kernel",
}
_MISMATCH = "RM has detected an NVML/RM version mismatch"


@check(
    "CUDA140",
    examples=[
        Example("eight that answer", (node(),)),
        Example("one that is lost", (node(healthy(), Device(1, trouble="GPU is lost")),), "GPU 1 does not answer: GPU is lost"),
        Example("another driver was installed", (Gpus(refused=_MISMATCH),), "version mismatch"),
        Example("a container that has lost its devices", (Gpus(refused="Unknown Error"),), "Unknown Error"),
        Example("NVML hangs", (Gpus(refused="NVML did not answer within 8 s"),), "did not answer within 8 s"),
    ],
)  # fmt: skip
def gpu_does_not_answer(gpus: Gpus) -> Iterator[Finding]:
    """The driver, or one of the GPUs, does not answer.

    ## Why it matters

    A GPU that is lost (it has "fallen off the bus"), or that needs a restart, fails every process that touches it, and often
    makes the calls for its neighbours hang. When the driver's libraries were renewed and its kernel module was not,
    nothing on the machine can use a GPU: `Driver/library version mismatch`, error 803.

    ## How to fix

    It needs the administrator of the machine: look for "NVRM" in the kernel's log, reset the GPU
    (`nvidia-smi --gpu-reset -i N`, when nothing uses it), reboot. On a rented machine take another one. Until then the others
    can be used: name them in CUDA_VISIBLE_DEVICES.
    """
    if gpus.refused:
        yield Finding(
            f"the NVIDIA driver does not answer: {gpus.refused}",
            Evidence(found=gpus.refused, wanted="an answer for each GPU", read_from=NVML),
            remedy=next(
                (remedy for words, remedy in _REMEDIES.items() if words in gpus.refused),
                "look for NVRM in the kernel's log (dmesg), or take another machine",
            ),
            stops=(EVERY_JOB,),
        )
    others = ",".join(str(device.index) for device in gpus.sound)
    for device in gpus.devices:
        if device.trouble:
            yield Finding(
                f"GPU {device.index} does not answer: {device.trouble}",
                Evidence(found=device.trouble, wanted="an answer", read_from=f"{NVML}, driver {gpus.driver}"),
                remedy="reset it or reboot"
                + (f"; until then leave it out: CUDA_VISIBLE_DEVICES={others}" if others else ""),
            )

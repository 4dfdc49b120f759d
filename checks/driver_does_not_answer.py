"""CUDA140: the NVIDIA driver does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._gpus import NVML, node
from verl_doctor.toolkit.fact_gpus import Gpus
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
        Example("eight GPUs that answer", (node(),)),
        Example("another driver was installed", (Gpus(refused=_MISMATCH),), "version mismatch"),
        Example("a container that has lost its devices", (Gpus(refused="Unknown Error"),), "Unknown Error"),
        Example("it hangs", (Gpus(refused="NVML was asked, and it did not end within 8 s"),), "did not end within 8 s"),
    ],
)  # fmt: skip
def driver_does_not_answer(gpus: Gpus) -> Iterator[Finding]:
    """The NVIDIA driver does not answer.

    ## Why it matters

    There are device files of GPUs, and NVML, the driver's own library, cannot be started, hangs or crashes. When the
    driver's libraries were renewed and its kernel module was not, nothing on the machine can use a GPU: `Driver/library version
    mismatch`, error 803. When it hangs, a GPU is often broken, and so does each process that touches it.

    ## How to fix

    The finding has the next step for what NVML said. Most of it needs the administrator: look for "NVRM" in the kernel's
    log, load the kernel module anew, reboot. On a rented machine take another one.
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

"""CUDA140: the NVIDIA driver does not respond."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, node
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.gpu.nodes import GpuNodes
from verl_doctor.toolkit.facts import Absent, Broken, Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

# By NVML's message. A container loses its devices when systemd is reloaded:
# NVIDIA/nvidia-container-toolkit#48.
_REMEDIES = {
    "version mismatch": "reboot: the driver's libraries and its kernel module have different versions",
    "Unknown Error": (
        "restart the container, which has lost its devices; outside a container, look for NVRM in dmesg"
    ),
    "Permissions": "give this user or container permission to open /dev/nvidia* (see ls -l /dev/nvidia*)",
    "Driver Not Loaded": "load the kernel module: modprobe nvidia; if that fails, build it for this kernel",
    "capability 'utility'": "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
}
_SHOWN = 8
_MISMATCH = "RM has detected an NVML/RM version mismatch"
_NODES = GpuNodes(("/dev/nvidia0", "/dev/nvidia1"))
_NO_LIBRARY = Unknown(
    "there is no libnvidia-ml.so.1; a container needs the driver capability 'utility'", kind="no library"
)
_NO_ANSWER = Unknown("NVML could not be queried: the process ended with status 0 before it responded")
_NO_GPU = Absent("there is no NVIDIA GPU here")


def _applies(gpus: Gpus | Unknown, nodes: GpuNodes | Unknown) -> Unknown | None:
    """Why the rule does not apply; None if NVML answered, or if there are GPUs it should have reported."""
    if isinstance(gpus, (Absent, Broken)):
        return gpus
    return gpus if isinstance(gpus, Unknown) and isinstance(nodes, Unknown) else None


def _examples() -> list[Example]:
    return [
        Example("eight GPUs that answer", (node(),)),
        Example("another driver was installed", (Gpus(refused=_MISMATCH),), "version mismatch"),
        Example("a container that has lost its devices", (Gpus(refused="Unknown Error"),), "Unknown Error"),
        Example(
            "the driver hangs",
            (Gpus(refused="NVML was queried, and it did not end within 8 s"),),
            "did not end within 8 s",
        ),
        Example("no GPU", ((Gpus, _NO_GPU), (GpuNodes, _NO_GPU))),
        Example(
            "a container without NVML",
            ((Gpus, _NO_LIBRARY), _NODES),
            "NVML reports nothing about the 2 GPUs here: there is no libnvidia-ml.so.1",
        ),
        Example(
            "the query ended without a result", ((Gpus, _NO_ANSWER), _NODES), "status 0 before it responded"
        ),
    ]


@check("CUDA140", phase="workers", applies=_applies, examples=_examples)
def driver_does_not_answer(gpus: Gpus | Unknown, nodes: GpuNodes | Unknown) -> Iterator[Finding]:
    """The NVIDIA driver does not respond.

    ## Why it matters

    GPU device files exist, but NVML, the driver's own library, cannot be started, hangs or crashes. If the
    driver's libraries were upgraded but its kernel module was not, nothing on the machine can use a GPU:
    `Driver/library version mismatch`, error 803. If NVML hangs, a GPU is often broken, and every process that
    touches it hangs too. If NVML is missing altogether, as in a container with only CUDA's libraries, vLLM
    assumes that the machine has no GPUs: `Failed to infer device type`.

    ## How to fix

    The finding gives the next step for NVML's error. Most errors need the administrator: look for "NVRM" in
    the kernel's log, reload the kernel module, or reboot. If the machine is rented, use another one.

    ## References

    vllm-project/vllm#14200
    """
    if isinstance(gpus, Unknown):
        yield from _unknown_gpus(gpus, nodes)
    elif gpus.refused:
        yield Finding(
            f"the NVIDIA driver does not respond: {gpus.refused}",
            Evidence(found=gpus.refused, wanted="a response for each GPU", read_from=NVML),
            remedy=_remedy(gpus.refused, "look for NVRM in the kernel's log (dmesg), or use another machine"),
            stops=(EVERY_JOB,),
            subject=Subject("driver", "nvidia"),
        )


def _unknown_gpus(gpus: Unknown, nodes: GpuNodes | Unknown) -> Iterator[Finding]:
    """Yield a finding for GPUs about which nothing is known.

    A failure of the doctor itself proves nothing about the driver.
    """
    if isinstance(nodes, Unknown):
        return
    why, is_missing = gpus.reason, gpus.kind == "no library"
    yield Finding(
        f"NVML reports nothing about the {counted(len(nodes.paths), 'GPU')} here: {why}",
        Evidence(
            found=why, wanted="a response for each GPU", read_from=f"{NVML}; {listed(nodes.paths, _SHOWN)}"
        ),
        remedy=_remedy(why, "run nvidia-smi; while NVML does not respond, the GPUs are not checked"),
        severity="error" if is_missing else "warning",
        subject=Subject("driver", "nvidia"),
    )


def _remedy(message: str, otherwise: str) -> str:
    return next((remedy for words, remedy in _REMEDIES.items() if words in message), otherwise)

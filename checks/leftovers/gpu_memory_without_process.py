"""LEFT111: GPU memory is in use, but no visible process holds it."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, gib, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.dying_processes import DyingProcesses
from verl_doctor.toolkit.collectors.gpu.gpus import CONTEXT, Device, Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed, ranges

_SHOWN = 4
_ALL = VisibleDevices(tuple(range(8)))
_CONTAINER, _HOST = DyingProcesses(), DyingProcesses(all_seen=True)
_HUNG = DyingProcesses(("VLLM::EngineCor (process 4711)",))
_OWN = Holder(pid=7, memory=130_000, role="ray worker", title="ray::WorkerDict", mine=True)


def _used(amount: int, *holders: Holder, mig: bool = False) -> Device:
    return healthy(
        0,
        memory=Memory(total=143771, used=amount, free=143155 - amount, reserved=616),
        holders=holders,
        mig=mig,
    )


def _examples() -> list[Example]:
    return [
        Example("an idle node", (node(), _ALL, _CONTAINER)),
        Example("a running job", (node(_used(130_500, _OWN)), _ALL, _CONTAINER)),
        Example(
            "a job that NVML does not list",
            (
                node(
                    _used(130_500), openers=(Holder(pid=8, memory=None, role="", title="python", mine=True),)
                ),
                _ALL,
                _CONTAINER,
            ),
        ),
        Example("a GPU divided by MIG", (node(_used(130_500, mig=True)), _ALL, _CONTAINER)),
        Example("a GPU that the job does not see", (node(_used(130_000)), VisibleDevices((3,)), _CONTAINER)),
        Example(
            "in a container",
            (node(_used(130_000)), _ALL, _CONTAINER),
            (
                "127.0 GiB of GPU 0 are in use, but by no process visible from here: most likely another "
                "container's or the host's"
            ),
        ),
        Example("on the host", (node(_used(130_000)), _ALL, _HOST), "the driver has not reclaimed it"),
        Example(
            "a process that cannot end",
            (node(_used(130_000)), _ALL, _HUNG),
            "VLLM::EngineCor (process 4711) was killed but has not ended",
        ),
    ]


@check("LEFT111", severity="warning", requires={"CUDA140", "CUDA141"}, examples=_examples)
def gpu_memory_without_process(
    gpus: Gpus, visible: VisibleDevices | Unknown, processes: DyingProcesses
) -> Iterator[Finding]:
    """GPU memory is in use, but no visible process holds it.

    ## Why it matters

    Nothing here can release it: there is no process to stop, and the next job finds less memory than it
    needs. The memory belongs to another container on the machine, to a process of the host, or to a killed
    process that hangs in the kernel.

    ## How to fix

    Run `nvidia-smi` on the host, where it lists all processes; in a container it lists only the container's
    own. A killed process that hangs releases its memory only when what it waits for ends (a dead network
    share, a GPU transfer) or the machine restarts. If no process is left, the administrator can reset the
    idle GPU (`nvidia-smi --gpu-reset -i N`). Otherwise choose other GPUs with CUDA_VISIBLE_DEVICES.
    """
    if gpus.openers:
        return
    held = [device for device in of_job(gpus, visible) if device.unattributed > CONTEXT and not device.mig]
    if not held:
        return
    amount = max(device.unattributed for device in held)
    yield Finding(
        (
            f"{'up to ' if len(held) > 1 else ''}{gib(amount)} of {named(held)} are in use, but by no "
            f"process visible from here: {_likely(processes)}"
        ),
        Evidence(
            found="; ".join(_state(device) for device in held[:_SHOWN]),
            wanted=f"less than {gib(CONTEXT)} that no process holds",
            read_from=f"{NVML}, driver {gpus.driver}",
        ),
        subject=Subject("device", ranges(device.index for device in held)),
        remedy=_remedy(processes),
    )


def _likely(processes: DyingProcesses) -> str:
    if processes.dying:
        return f"{listed(processes.dying, _SHOWN)} was killed but has not ended"
    if processes.all_seen:
        return "the driver has not reclaimed it from a process that has ended"
    return "most likely another container's or the host's"


def _remedy(processes: DyingProcesses) -> str:
    others = "choose other GPUs with CUDA_VISIBLE_DEVICES"
    if processes.dying:
        return f"wait until it has ended, or {others}; the machine may need a restart"
    if processes.all_seen:
        return f"{others}, or have the administrator reset these while nothing uses them"
    return f"run nvidia-smi on the host, ask the other container's owner, or {others}"


def _state(device: Device) -> str:
    named_here = sum(holder.memory or 0 for holder in device.holders)
    used = device.memory.used if device.memory else 0
    return (
        f"GPU {device.index}: {gib(used)} in use, {gib(named_here)} of it by processes that NVML lists here"
    )

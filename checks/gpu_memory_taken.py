"""CUDA141: less GPU memory is free than the rollout is to take."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

from verl_doctor.checks._configuration import asked, place
from verl_doctor.checks._gpus import NVML, gib, healthy, named, node, of_job
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_gpu_holders import Holder
from verl_doctor.toolkit.fact_gpus import CONTEXT, Device, Gpus, Memory
from verl_doctor.toolkit.fact_visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import listed

_UTILISATION = "actor_rollout_ref.rollout.gpu_memory_utilization"
_SHOWN = 4
_ALL = VisibleDevices(tuple(range(8)))
_LEFT = Holder(4711, 130_000, "engine", "VLLM::EngineCore", mine=True, parent=1, left_over=True)


def _used(amount: int, *holders: Holder, index: int = 0) -> Device:
    return healthy(index, memory=Memory(143771, amount, 143155 - amount, 616), holders=holders)


_NO_SCRIPT = (Configuration, Unknown("no launch script"))


@check(
    "CUDA141",
    severity="warning",
    requires={"CUDA140"},
    examples=[
        Example("an idle node", (node(), _ALL, *asked())),
        Example("no launch script, and a job runs", (node(_used(130_000, Holder(7, 130_000, "ray worker", "ray::WorkerDict", mine=True))), _ALL, _NO_SCRIPT)),
        Example("in use, and yet enough is free", (node(_used(20_000, _LEFT)), _ALL, *asked())),
        Example("in use where the job does not look", (node(_used(0), _used(140_000, index=1)), VisibleDevices((0,)), *asked())),
        Example("left over by a run that was killed", (node(_used(130_000, _LEFT)), _ALL, *asked()), "VLLM::EngineCore (process 4711, 127.0 GiB), left over"),
        Example("of another user", (node(_used(130_000, Holder(9, 130_000, "", "python"))), _ALL, *asked()), "of another user"),
        Example("of another container", (node(_used(130_000)), _ALL, *asked()), "held by no process that NVML names here"),
        Example("of a process that NVML does not name", (node(_used(130_000), openers=(Holder(8, None, "", "python", mine=True),)), _ALL, *asked()), "these have a GPU open: python (process 8)"),
        Example("a display's remainder", (node(_used(76)), _ALL, *asked(f"{_UTILISATION}=1.0")), "0.1 GiB of it are missing"),
        Example("left over, whatever the job is to be", (node(_used(130_000, _LEFT)), _ALL, _NO_SCRIPT), "left over"),
    ],
)  # fmt: skip
def gpu_memory_taken(
    gpus: Gpus, visible: VisibleDevices | Unknown, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """Less GPU memory is free than the rollout is to take.

    ## Why it matters

    vLLM takes `gpu_memory_utilization` of the whole memory, not of what is free, and refuses to start when less is free:
    `Free memory on device ... on startup is less than desired GPU memory utilization`. Engines and Ray workers of a run that
    was killed live on, and hold what they had.

    ## How to fix

    End what is left over, by its number (`kill NUMBER`, and `kill -9 NUMBER` when it is still there after ten seconds), never
    by name: that ends other jobs, too. Wait for running jobs, or choose other GPUs with CUDA_VISIBLE_DEVICES. When all that is
    missing is the little that a display or the driver keeps, ask for less.
    """
    mine = of_job(gpus, visible)
    word, share = None, None
    if isinstance(configuration, Configuration):
        word, share = configuration.asked_for(_UTILISATION), configuration.number(_UTILISATION)
    if share is None:
        held = [device for device in mine if any(holder.left_over for holder in device.holders)]
    else:
        held = [device for device in mine if _missing(device, share) > 0]
    if not held:
        return
    most = max(held, key=lambda device: _missing(device, share or 0))
    who = _who(held)
    remainder = not who and all(device.memory and device.memory.used < CONTEXT for device in held)
    by = f": held by {who or _nobody(gpus.openers)}" if not remainder else ""
    if share is None:
        message = f"memory of {named(held)} is held by what no job needs any more: {who}"
    else:
        message = (
            f"{named(held)}: {_UTILISATION.rpartition('.')[2]}={share:g} asks for {gib(_wanted(most, share))}, and "
            f"{gib(_missing(most, share))} of it are missing"
            f"{by}"
        )
    yield Finding(
        message,
        Evidence(
            found="; ".join(_state(device) for device in held[:_SHOWN]),
            wanted=f"{_UTILISATION}={share:g}" + ("" if word else ", verl's default") if share else "",
            read_from=f"{NVML}, driver {gpus.driver}",
        ),
        location=place(word) if word else None,
        remedy=_remedy(held, remainder=remainder),
    )


def _wanted(device: Device, share: float) -> float:
    return share * device.memory.usable if device.memory else 0


def _missing(device: Device, share: float) -> float:
    return _wanted(device, share) - device.memory.free if device.memory else 0


def _nobody(openers: tuple[Holder, ...]) -> str:
    """Processes that have a GPU open may be those, or only look at it."""
    found = f"; these have a GPU open: {listed(map(_described, openers), _SHOWN)}" if openers else ""
    return f"no process that NVML names here{found}"


def _who(held: list[Device]) -> str:
    """The processes that hold more than a context, the largest first."""
    found = {holder.pid: holder for device in held for holder in device.holders if _counts(holder)}
    largest = sorted(found.values(), key=lambda holder: -(holder.memory or 0))
    return listed(map(_described, largest), _SHOWN)


def _counts(holder: Holder) -> bool:
    return holder.seen and (holder.memory is None or holder.memory >= CONTEXT or holder.left_over)


def _described(holder: Holder) -> str:
    amount = f", {gib(holder.memory)}" if holder.memory else ""
    whose = (
        ", left over by a run that has ended"
        if holder.left_over
        else ""
        if holder.mine
        else ", of another user"
    )
    return f"{holder.title} (process {holder.pid}{amount}){whose}"


def _state(device: Device) -> str:
    memory = device.memory
    if memory is None:
        return f"GPU {device.index}"
    return f"GPU {device.index}: {gib(memory.free)} free of {gib(memory.usable)}"


def _remedy(held: list[Device], *, remainder: bool) -> str:
    left = sorted(
        {holder.pid for device in held for holder in device.holders if holder.left_over and holder.mine}
    )
    if left:
        return f"look at {'it' if len(left) == 1 else 'them'}, then: kill {' '.join(map(str, left))}"
    if remainder:
        fits = min(device.memory.free / device.memory.usable for device in held if device.memory)
        return f"nothing is left over; ask for less: {_UTILISATION}={floor(fits * 100) / 100:g}"
    if any(device.holders for device in held):
        return "wait for that to end, or choose other GPUs with CUDA_VISIBLE_DEVICES"
    return "it belongs to another container or to the host: ask its owner, or choose other GPUs with CUDA_VISIBLE_DEVICES"

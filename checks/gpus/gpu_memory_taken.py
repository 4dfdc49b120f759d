"""CUDA141: less GPU memory is free than the rollout will take."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import floor

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.gpus import NVML, about, gib, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import CONTEXT, Device, Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess, Leftover
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import listed

_UTILISATION = "actor_rollout_ref.rollout.gpu_memory_utilization"
_SHOWN = 4
_WORTH_A_TRY = 0.2  # of the memory: less hardly has room for weights and a cache
_ALL = VisibleDevices(tuple(range(8)))
_ENGINE = Holder(pid=4711, memory=130_000, role="engine", title="VLLM::EngineCore", mine=True, parent=1)
_LEFT = LeftProcesses((Leftover("process", "VLLM::EngineCore (process 4711)", (), EndProcess(4711, 1)),))
_NONE_LEFT = LeftProcesses()


def _used(amount: int, *holders: Holder, index: int = 0) -> Device:
    return healthy(
        index, memory=Memory(total=143771, used=amount, free=143155 - amount, reserved=616), holders=holders
    )


_NO_SCRIPT = (Configuration, Unknown("no launch script"))


def _examples() -> list[Example]:
    return [
        Example("an idle node", (node(), _ALL, *configured(), _NONE_LEFT)),
        Example(
            "no launch script, and a job runs",
            (
                node(
                    _used(
                        130_000,
                        Holder(pid=7, memory=130_000, role="ray worker", title="ray::WorkerDict", mine=True),
                    )
                ),
                _ALL,
                _NO_SCRIPT,
                _NONE_LEFT,
            ),
        ),
        Example("in use, and yet enough is free", (node(_used(20_000, _ENGINE)), _ALL, *configured(), _LEFT)),
        Example(
            "in use where the job does not look",
            (node(_used(0), _used(140_000, index=1)), VisibleDevices((0,)), *configured(), _NONE_LEFT),
        ),
        Example(
            "a process left over by a killed run holds it",
            (node(_used(130_000, _ENGINE)), _ALL, *configured(), _LEFT),
            "VLLM::EngineCore (process 4711, 127.0 GiB), left over",
        ),
        Example(
            "a running job holds it",
            (node(_used(130_000, _ENGINE)), _ALL, *configured(), _NONE_LEFT),
            "held by VLLM::EngineCore (process 4711, 127.0 GiB)",
        ),
        Example(
            "another user holds it",
            (
                node(_used(130_000, Holder(pid=9, memory=130_000, role="", title="python"))),
                _ALL,
                *configured(),
                _NONE_LEFT,
            ),
            "of another user",
        ),
        Example(
            "another container holds it",
            (node(_used(130_000)), _ALL, *configured(), _NONE_LEFT),
            "held by a process that NVML does not list",
        ),
        Example(
            "a process that NVML does not list holds it",
            (
                node(
                    _used(130_000), openers=(Holder(pid=8, memory=None, role="", title="python", mine=True),)
                ),
                _ALL,
                *configured(),
                _NONE_LEFT,
            ),
            "these have a GPU open: python (process 8)",
        ),
        Example(
            "a display holds a little",
            (node(_used(76)), _ALL, *configured(f"{_UTILISATION}=1.0"), _NONE_LEFT),
            "0.1 GiB more than is free",
        ),
    ]


@check("CUDA141", severity="warning", phase="engine", requires={"CUDA140"}, examples=_examples)
def gpu_memory_taken(
    gpus: Gpus,
    visible: VisibleDevices | Unknown,
    configuration: Configuration | Unknown,
    left: LeftProcesses | Unknown,
) -> Iterator[Finding]:
    """Less GPU memory is free than the rollout will take.

    ## Why it matters

    vLLM takes `gpu_memory_utilization` of the whole memory, not of what is free, and refuses to start
    when less is free: `Free memory on device ... on startup is less than desired GPU memory
    utilization`. Engines and Ray workers of a killed run keep running, and hold their memory.

    ## How to fix

    `verl-doctor clean --apply` ends what is proven to be left over; never end processes by name: that ends
    other jobs as well. Wait for running jobs, or choose other GPUs with CUDA_VISIBLE_DEVICES. If only the
    small amount that a display or the driver uses is missing, request less.
    """
    share = configuration.number(_UTILISATION) if isinstance(configuration, Configuration) else None
    if isinstance(configuration, Unknown) or share is None:
        return
    word = configuration.override_of(_UTILISATION)
    held = [device for device in of_job(gpus, visible) if _missing(device, share) > 0]
    if not held:
        return
    most = max(held, key=lambda device: _missing(device, share))
    proven = _proven(left)
    held_by = _who(held, proven)
    remainder = not held_by and all(device.memory and device.memory.used < CONTEXT for device in held)
    by = f": held by {held_by or _without_process(gpus.openers, proven)}" if not remainder else ""
    yield Finding(
        f"{named(held)}: {_UTILISATION.rpartition('.')[2]}={share:g} requests {gib(_wanted(most, share))}, "
        f"{gib(_missing(most, share))} more than is free{by}",
        Evidence(
            found="; ".join(_state(device) for device in held[:_SHOWN]),
            wanted=f"{_UTILISATION}={share:g}" + ("" if word else ", verl's default"),
            read_from=f"{NVML}, driver {gpus.driver}",
        ),
        location=place(word) if word else None,
        remedy=_remedy(held, proven, remainder=remainder),
        severity="error" if any(_stays(device, share, proven) for device in held) else None,
        subject=about(held),
    )


def _proven(left: LeftProcesses | Unknown) -> frozenset[int]:
    """The process IDs that a finished run left over."""
    found = () if isinstance(left, Unknown) else left.found
    return frozenset(leftover.removal.pid for leftover in found if isinstance(leftover.removal, EndProcess))


def _wanted(device: Device, share: float) -> float:
    return share * device.memory.usable if device.memory else 0


def _missing(device: Device, share: float) -> float:
    return _wanted(device, share) - device.memory.free if device.memory else 0


def _stays(device: Device, share: float, proven: Collection[int]) -> bool:
    """Whether the missing memory is held by processes that will not end by themselves.

    They belong to another user, or are left over from a finished run.
    """
    held = sum(holder.memory or 0 for holder in device.holders if holder.pid in proven or not holder.mine)
    return held >= CONTEXT and _missing(device, share) > 0


def _without_process(openers: tuple[Holder, ...], proven: Collection[int]) -> str:
    """A phrase for memory without a known process.

    Processes that have a GPU open may hold it, or merely monitor the GPU.
    """
    described = (_described(holder, proven) for holder in openers)
    found = f"; these have a GPU open: {listed(described, _SHOWN)}" if openers else ""
    return f"a process that NVML does not list{found}"


def _who(held: list[Device], proven: Collection[int]) -> str:
    """The processes that hold more than a context, largest first, as text."""
    found = {
        holder.pid: holder
        for device in held
        for holder in device.holders
        if holder.seen and (holder.memory is None or holder.memory >= CONTEXT or holder.pid in proven)
    }
    largest = sorted(found.values(), key=lambda holder: -(holder.memory or 0))
    return listed((_described(holder, proven) for holder in largest), _SHOWN)


def _described(holder: Holder, proven: Collection[int]) -> str:
    amount = f", {gib(holder.memory)}" if holder.memory else ""
    whose = ", left over by a run that has ended" if holder.pid in proven else ""
    return (
        f"{holder.title} (process "
        f"{holder.pid}{amount}){whose or ('' if holder.mine else ', of another user')}"
    )


def _state(device: Device) -> str:
    memory = device.memory
    if memory is None:
        return f"GPU {device.index}"
    return f"GPU {device.index}: {gib(memory.free)} free of {gib(memory.usable)}"


def _remedy(held: list[Device], proven: Collection[int], *, remainder: bool) -> str:
    if any(holder.pid in proven for device in held for holder in device.holders):
        return "run verl-doctor clean to see what is left over, with the proof, and with --apply to end it"
    free = min((device.memory.free / device.memory.usable for device in held if device.memory), default=0.0)
    fits = f"{_UTILISATION}={floor(free * 100) / 100:g}"
    if remainder:
        return f"request less, because nothing is left over: {fits}"
    beside = f", or request only what is free: {fits}" if free > _WORTH_A_TRY else ""
    if any(device.holders for device in held):
        return f"wait until that ends, or choose other GPUs with CUDA_VISIBLE_DEVICES{beside}"
    return (
        "ask its owner, in another container or on the host, or choose other GPUs with"
        f" CUDA_VISIBLE_DEVICES{beside}"
    )

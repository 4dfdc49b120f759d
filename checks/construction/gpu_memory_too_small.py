"""BUILD130: the job needs more memory than its GPUs have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from verl_doctor.checks.construction._world import GIB, a_world, parts_of, without_world
from verl_doctor.checks.shared.configuration import SHARE, configured, place
from verl_doctor.checks.shared.construction import SOUND
from verl_doctor.checks.shared.corrections import healed
from verl_doctor.checks.shared.gpu_room import MARGIN, OVERHEAD, STEP, Room
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.construction.world import Share, World
from verl_doctor.toolkit.collectors.host.gpu_memory import GpuMemory
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Phase, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_FSDP = "actor_rollout_ref.actor.fsdp_config"
_PARALLEL = "actor_rollout_ref.rollout.tensor_model_parallel_size"
# An estimate of the part of its share that an engine does not take while it sleeps or wakes up: that for
# activations and CUDA graphs.
_FREE_OF_SHARE = 6 * GIB
_A100 = GpuMemory(each=80 * GIB, by="--gpu-memory")


def _examples() -> list[Example]:
    return [
        Example("everything fits", (a_world(), _A100, *configured())),
        Example("no world was made", (SOUND, _A100, *configured())),
        Example(
            "training by itself",
            (a_world(28.0), _A100, *configured()),
            "the actor's step needs at least 140 GiB on each of 8 GPUs, which have 80.0 GiB",
        ),
        Example(
            "the engine cannot start",
            (a_world(15.0, share=0.85), _A100, *configured(f"{SHARE}=0.85")),
            "the engine needs 68.0 GiB at its start, but the trainer's weights take 15.0 GiB of 80.0 GiB",
        ),
        Example(
            "the second rollout",
            (a_world(12.0, share=0.7), _A100, *configured(f"{SHARE}=0.7")),
            "from the second step on the trainer keeps 36.0 GiB",
        ),
        Example("offloaded", (a_world(12.0, share=0.7, away="between"), _A100, *configured(f"{SHARE}=0.7"))),
        Example(
            "a share below the weights",
            (a_world(share=0.15), _A100, *configured(f"{SHARE}=0.15")),
            "an engine needs at least 16.8 GiB",
        ),
        Example(
            "an engine that never sleeps",
            (a_world(4.0, share=0.85, sleeps=False), _A100, *configured(f"{SHARE}=0.85")),
            "beside an engine that keeps its memory",
        ),
        Example(
            "an engine on GPUs of its own",
            (a_world(12.0, share=0.9, apart=True), _A100, *configured(f"{SHARE}=0.9")),
        ),
    ]


@check("BUILD130", cost="live", requires=("CUDA157",), applies=without_world, examples=_examples, since="0.2")
def gpu_memory_too_small(
    construction: Construction, memory: GpuMemory, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The job needs more memory than its GPUs have.

    ## Why it matters
    The trainer and the rollout share each GPU in turn. verl's own code, run as one rank of the job's size,
    computed how much memory a rank needs for weights, gradients and optimizer states; the rollout takes
    `gpu_memory_utilization` of the whole GPU. If both do not fit, vLLM refuses to start (`Free memory on
    device ... is less than desired`), or `CUDA out of memory` ends the first steps.

    ## How to fix
    Apply what the finding computes. Its numbers are lower bounds: activations come on top. `--gpu-memory
    SIZE` checks the job for GPUs on other machines.
    """
    world = construction.world
    if world is None:
        return
    whole = memory.each
    engine = world.engine
    taken = 0 if engine.apart else int(engine.share * whole)
    fullest = max(world.shares, key=world.working)
    needed = world.working(fullest)
    beside = 0 if engine.sleeps else max(taken - _FREE_OF_SHARE, 0)
    if needed + beside > whole:
        yield _training(world, fullest, memory, needed, beside)
        return
    word = None if isinstance(configuration, Unknown) else configuration.override_of(SHARE)
    where = place(word) if word else None
    tight = None
    if taken and world.at_start + taken > whole:
        tight = _finding(
            (
                f"the engine needs {in_bytes(taken)} at its start, but the trainer's weights take "
                f"{in_bytes(world.at_start)} of {in_bytes(whole)}"
            ),
            world,
            memory,
            "engine",
            where,
        )
    elif taken and world.resident + taken > whole:
        tight = _finding(
            (
                f"from the second step on the trainer keeps {in_bytes(world.resident)} on each GPU, and the "
                f"engine takes up to {in_bytes(taken)} of {in_bytes(whole)}"
            ),
            world,
            memory,
            "engine" if world.at_start + OVERHEAD + taken > whole else "first update",
            where,
            certain=world.resident + taken - _FREE_OF_SHARE > whole,
        )
    if tight is not None:
        yield _with_room(tight, world, whole, configuration)
    least = engine.least
    share = int(engine.share * whole)
    if least is not None and 0 < share < least:
        enough = ceil((least + MARGIN) / whole / STEP) * STEP
        yield _finding(
            (
                f"an engine needs at least {in_bytes(least)} on each GPU, and "
                f"{SHARE.rpartition('.')[2]}={engine.share:g} gives it {in_bytes(share)}"
            ),
            world,
            memory,
            "engine",
            where,
            remedy=f"set {SHARE}={enough:.2f}"
            if enough < 1
            else f"spread the weights over more GPUs: {_PARALLEL}",
        )


def _training(world: World, share: Share, memory: GpuMemory, needed: int, beside: int) -> Finding:
    engine = f", beside an engine that keeps its memory ({in_bytes(beside)})" if beside else ""
    spread = ceil(world.size * needed / max(memory.each - beside - MARGIN, GIB))
    ways = (
        [f"use {spread} or more such GPUs" if spread > world.size else "use more GPUs, or larger ones"]
        if not beside
        else ["let the engine sleep: set actor_rollout_ref.rollout.free_cache_engine=True"]
    )
    if share.strategy == "fsdp2" and share.weights_away != "always":
        ways.append(f"set {_FSDP}.offload_policy=True, which keeps all of it in the host's memory")
    return Finding(
        (
            f"the {share.name}'s {'step' if share.gradients else 'forward pass'} needs at least "
            f"{in_bytes(needed)} on each of {counted(world.size, 'GPU')}, which have "
            f"{in_bytes(memory.each)}{engine}"
        ),
        Evidence(found=f"{in_bytes(memory.each)} ({memory.by})", wanted=parts_of(share), read_from=world.how),
        remedy="; or ".join(ways),
        subject=Subject("memory", "GPU", share.name),
        stops=(EVERY_JOB,),
        phase="first update",
    )


def _finding(
    message: str,
    world: World,
    memory: GpuMemory,
    phase: Phase,
    where: Location | None,
    *,
    remedy: str = "",
    certain: bool = True,
) -> Finding:
    held = "; ".join(f"{share.name}: {parts_of(share)}" for share in world.shares)
    return Finding(
        message,
        Evidence(found=f"{in_bytes(memory.each)} ({memory.by})", wanted=held, read_from=world.how),
        location=where,
        remedy=remedy,
        severity="error" if certain else "warning",
        subject=Subject("setting", SHARE),
        stops=(EVERY_JOB,) if certain else (),
        phase=phase,
    )


def _with_room(finding: Finding, world: World, whole: int, configuration: Configuration | Unknown) -> Finding:
    """The finding with a share that gives the trainer enough room, or offload; a correction sets it."""
    actor = next((share for share in world.shares if share.name == "actor"), None)
    weights = actor.weights if actor is not None and actor.weights_away == "no" else 0
    states = (actor.states or 0) if actor is not None and actor.states_away == "no" else 0
    room = Room(
        whole,
        world.engine.share,
        world.at_start,
        world.resident,
        world.engine.least or 0,
        {f"{_FSDP}.param_offload": weights},
        {f"{_FSDP}.optimizer_offload": states},
        None,
    )
    text = ", or ".join(map(room.shown, room.ways())) or "spread the trainer over more GPUs"
    fields = healed("BUILD130", room.correction(configuration))
    return replace(finding, remedy=text, **fields)

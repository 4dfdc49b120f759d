"""Shared by the rules about one rank of all GPUs: whether there is one, its presentation, and examples."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.construction.construction import Built, Construction
from verl_doctor.toolkit.collectors.construction.world import Away, Dimension, Engine, Mesh, Share, World
from verl_doctor.toolkit.text import in_bytes

GIB = 1 << 30


def a_world(
    weights: float = 4.0,
    gpus: int = 8,
    *,
    share: float = 0.5,
    engine: float = 15.0,
    away: Away = "no",
    sleeps: bool = True,
    apart: bool = False,
) -> Construction:
    """Facts of an example: an actor, a reference in the host's memory, and an engine.

    The actor has this many GiB of weights per GPU.
    """
    size = int(weights * GIB)
    reference = Share(
        name="reference",
        strategy="fsdp2",
        shards=gpus,
        units=31,
        weights=size,
        weights_away="always",
        states_away="always",
    )
    actor = Share(
        name="actor",
        strategy="fsdp2",
        shards=gpus,
        units=31,
        weights=size,
        gradients=size,
        states=2 * size,
        temporary=size,
        gathered=GIB,
        weights_away=away,
        states_away=away,
    )
    rollout = Engine(
        name="vllm",
        tensor_parallel=1,
        pipeline_parallel=1,
        weights=int(engine * GIB),
        token=57344,
        longest=32768,
        share=share,
        apart=apart,
        sleeps=sleeps,
    )
    meshes = (Mesh(name="actor", dimensions=(Dimension(name="fsdp", size=gpus),)),)
    world = World(
        size=gpus,
        nodes=1,
        how="verl's workers and engines",
        meshes=meshes,
        shares=(reference, actor),
        engine=rollout,
    )
    return replace(Construction((Built(stage="world", ended="ok"),)), world=world)


def without_world(construction: Construction) -> str | None:
    """Return why rules about the GPUs of the whole job do not apply, None if they do."""
    return "no rank of the job was built" if construction.world is None else None


def parts_of(share: Share) -> str:
    """The parts of one model on a GPU, as text."""
    named = [
        ("weights", share.weights, share.weights_away),
        ("gradients", share.gradients, "always" if share.weights_away == "always" else "no"),
        ("optimizer", share.states, share.states_away),
    ]
    shown = [f"{name} {in_bytes(size)}{_HINTS[away]}" for name, size, away in named if size]
    if share.states is None:
        shown.append("optimizer not known")
    return ", ".join(shown)


_HINTS = {"no": "", "between": " (offloaded between steps)", "always": " (in the host's memory)"}

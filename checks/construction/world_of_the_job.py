"""BUILD132: what each GPU of the job holds."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.construction._world import a_world, parts_of, without_world
from verl_doctor.checks.shared.construction import SOUND
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.host.gpu_memory import GpuMemory
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_H200 = GpuMemory(each=143771 << 20, by="NVIDIA H200")


def _examples() -> list[Example]:
    return [
        Example("no world was made", (SOUND, _H200)),
        Example(
            "eight GPUs",
            (a_world(), _H200),
            (
                "each of 8 GPUs holds reference: weights 4.0 GiB (in the host's memory); actor: weights 4.0 "
                "GiB, gradients 4.0 GiB"
            ),
        ),
    ]


@check("BUILD132", severity="info", cost="live", applies=without_world, examples=_examples, since="0.2")
def world_of_the_job(construction: Construction, memory: GpuMemory | Unknown) -> Iterator[Finding]:
    """What each GPU of the job will hold.

    ## Why it matters
    Weights, gradients and optimizer states are known before a run: verl's own code ran as one rank of all
    GPUs, on tensors without data. Activations come on top; they depend on sequence lengths and micro batches.

    ## How to fix
    Nothing is wrong. `--gpu-memory 80GiB` checks the job for GPUs on other machines.
    """
    world = construction.world
    if world is None:
        return
    engine = world.engine
    held = "; ".join(f"{share.name}: {parts_of(share)}" for share in world.shares)
    rollout = (
        f"{engine.name} {f'weights {in_bytes(engine.weights)}' if engine.weights else 'weights not known'}"
    )
    fullest = max((world.working(share) for share in world.shares), default=0)
    whole = "" if isinstance(memory, Unknown) else f" of {in_bytes(memory.each)} ({memory.by})"
    yield Finding(
        f"each of {counted(world.size, 'GPU')} holds {held}; {rollout} in a share of {engine.share:g}",
        Evidence(
            found=(
                f"at least {in_bytes(fullest)}{whole} during a training step, {in_bytes(world.resident)} "
                "during the rollout"
            ),
            wanted="; ".join(map(str, world.meshes)),
            read_from=world.how,
        ),
        subject=Subject("memory", "GPU"),
    )

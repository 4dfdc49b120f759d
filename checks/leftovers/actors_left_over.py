"""LEFT120: finished jobs have left detached actors or placement groups in Ray."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.leftovers.actors import LeftActors
from verl_doctor.toolkit.leftover import Kept, KillActor, Leftover, RemoveGroup
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, listed

_SHOWN = 4
_RAY = "192.0.2.1:6379", "session_2026-11-21_10-00-00_000000_1"
_PROOF = (
    "job 01000000, which made it, has finished",
    "no driver is connected to this Ray that could hold or find it",
)
_ACTOR = Leftover(
    "actor",
    "reward_model (RewardWorker), holds 1 GPU",
    _PROOF,
    KillActor(*_RAY, "a1b2", "/env/bin/python"),
    store="resources",
)
_GROUP = Leftover(
    "placement group",
    "verl_pool, holds 8 GPU",
    _PROOF,
    RemoveGroup(*_RAY, "c3d4", "/env/bin/python"),
    store="resources",
)


def _examples() -> list[Example]:
    return [
        Example("nothing is left over", (LeftActors(),)),
        Example(
            "a driver may use the actor",
            (LeftActors(kept=(Kept("actor", "cache (Cache)", "a driver is connected that may use it"),)),),
        ),
        Example(
            "a detached actor",
            (LeftActors((_ACTOR,)),),
            "1 actor of finished jobs is left in Ray: reward_model (RewardWorker), holds 1 GPU",
        ),
        Example(
            "and a placement group",
            (LeftActors((_ACTOR, _GROUP)),),
            "1 actor and 1 placement group of finished jobs are left in Ray",
        ),
    ]


@check("LEFT120", severity="warning", examples=_examples)
def actors_left_over(left: LeftActors) -> Iterator[Finding]:
    """Finished jobs have left detached actors or placement groups in Ray.

    ## Why it matters

    Ray ends what a job created when the job ends, except what is detached: that keeps its CPUs and GPUs
    until it is ended by hand, and the next job waits for resources that never become free.

    The finding lists only what is provably unused: the job that created it has finished, no driver is
    connected to this Ray, and no Ray Serve runs in it. While any driver is connected, everything is kept,
    because a driver may look up an actor by its name.

    ## How to fix

    `verl-doctor clean` shows each with its proof; `verl-doctor clean --apply` ends them. To do so it connects
    to Ray as a driver, with the target's interpreter, which adds a finished job to Ray's table. By hand:
    `ray.kill(ray.get_actor(NAME, NAMESPACE))` in a driver.
    """
    if not left.found:
        return
    actors, groups = left.of("actor"), left.of("placement group")
    counts = [
        counted(len(some), noun) for some, noun in ((actors, "actor"), (groups, "placement group")) if some
    ]
    yield Finding(
        f"{' and '.join(counts)} of finished jobs {'is' if len(left.found) == 1 else 'are'} left in Ray: "
        + listed((leftover.name for leftover in left.found), _SHOWN),
        Evidence(
            found=f"{left.found[0].name}: {'; '.join(left.found[0].proof)}",
            wanted="nothing of a finished job",
            read_from="Ray's GCS",
        ),
        subject=Subject("cluster", _clusters(left)),
        remedy="run verl-doctor clean to see them with the proof, and with --apply to end them",
    )


def _clusters(left: LeftActors) -> str:
    """The addresses of the clusters with leftovers."""
    removals = (leftover.removal for leftover in left.found)
    return ", ".join(
        sorted({removal.address for removal in removals if isinstance(removal, KillActor | RemoveGroup)})
    )

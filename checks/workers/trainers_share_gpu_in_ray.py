"""RAY127: Ray has given one GPU to the trainers of several worker groups."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.workers._worker_groups import a_rank, running_groups, runs
from verl_doctor.toolkit.collectors.gpu.gpus import CONTEXT, Device, Gpus, Memory
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.worker_groups import Member, WorkerGroup
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed, ranges

_NO_GPU = Absent("there is no NVIDIA GPU here")
_MOST = 4
_TRAINS = ("actor", "critic", "ref", "train")
_GENERATES = (
    "rollout_",
    "reward_",
    "teacher_",
)  # prefixes of groups that only generate or score
_PAIR = (a_rank(0), a_rank(0, prefix="def456", pid=2000, roles=("critic",)))
_SEEN = Gpus(
    (
        Device(
            index=0,
            name="H200",
            memory=Memory(total=140_000, used=90_000, free=50_000),
            holders=(Holder(pid=1000, memory=40_000), Holder(pid=2000, memory=40_000)),
        ),
    )
)


def _examples() -> list[Example]:
    return [
        Example("colocated roles in one process", (runs(a_rank(0), a_rank(1)), _NO_GPU)),
        Example(
            "a group that generates next to a group that trains",
            (runs(a_rank(0), a_rank(0, prefix="rollout_colocate_0")), _NO_GPU),
        ),
        Example(
            "two groups on GPUs of their own",
            (runs(a_rank(0), a_rank(0, prefix="def456", gpus=(1,))), _NO_GPU),
        ),
        Example(
            "without GPUs", (runs(*(a_rank(0, prefix=prefix, gpus=()) for prefix in ("a", "b"))), _NO_GPU)
        ),
        Example("NVML sees both, which CUDA151 reports", (runs(*_PAIR), _SEEN)),
        Example(
            "actor and critic apart",
            (runs(*_PAIR), _NO_GPU),
            "2 trainers share GPU 0 of 10.0.0.5: abc123WorkerDict, def456WorkerDict",
        ),
    ]


@check("RAY127", severity="warning", examples=_examples)
def trainers_share_gpu_in_ray(clusters: RayClusters, gpus: Gpus | Unknown) -> Iterator[Finding]:
    """Ray has given one GPU to the trainers of several worker groups.

    ## Why it matters

    Roles that share a GPU should share one process, verl's `WorkerDict`: memory that one role frees can then
    be used by the next. Two processes fragment it, and the first time both peak together, one runs out of
    memory. Ray assigns fractions of a GPU (`1 / max_colocate_count`) but does not track its memory.

    ## How to fix

    Put the roles into one worker group (`create_colocated_worker_cls`), or give each its own resource pool.
    """
    shared: dict[tuple[str, str, tuple[str, ...]], list[tuple[int, list[Member]]]] = {}
    for (at, node, gpu), found in _on_gpus(clusters).items():
        names = tuple(group.name for group, _ in found)
        members = [member for _, member in found]
        if len(found) > 1 and not _seen(members, gpus):
            shared.setdefault((at, node, names), []).append((gpu, members))
    for (at, node, names), places in shared.items():
        numbers = [gpu for gpu, _ in places]
        is_single = len(numbers) == 1
        yield Finding(
            (
                f"{len(names)} trainers share {'GPU' if is_single else 'each of GPUs'} {ranges(numbers)} of "
                f"{node}: {listed(names, _MOST)}"
            ),
            Evidence(
                "; ".join(
                    (
                        f"GPU {gpu}: "
                        f"{', '.join(f'{_roles(member)} (process {member.actor.pid})' for member in members)}"
                    )
                    for gpu, members in places[:_MOST]
                ),
                "one process for all roles of a GPU",
                f"the GCS at {at}",
            ),
            subject=Subject("device", ranges(numbers), node),
            remedy="let the roles share one worker group, or give each a resource pool of its own",
        )


def _on_gpus(clusters: RayClusters) -> dict[tuple[str, str, int], list[tuple[WorkerGroup, Member]]]:
    """The trainers by cluster, node and GPU number."""
    found: dict[tuple[str, str, int], list[tuple[WorkerGroup, Member]]] = {}
    for cluster, group in running_groups(clusters):
        if _trains(group):
            for member in group.of("alive"):
                for gpu in member.actor.gpus:
                    found.setdefault((cluster.address, member.actor.address, gpu), []).append((group, member))
    return found


def _trains(group: WorkerGroup) -> bool:
    roles = " ".join(group.roles or (group.class_name,)).lower()
    return not group.prefix.startswith(_GENERATES) and any(word in roles for word in _TRAINS)


def _seen(members: list[Member], gpus: Gpus | Unknown) -> bool:
    """Whether NVML reports two of them, each with at least a context's memory, on one GPU of this machine."""
    pids = {member.actor.pid for member in members}
    devices = () if isinstance(gpus, Unknown) else gpus.sound
    return any(
        sum(holder.pid in pids and (holder.memory or 0) >= CONTEXT for holder in device.holders) > 1
        for device in devices
    )


def _roles(member: Member) -> str:
    return " + ".join(member.actor.roles) or member.actor.name

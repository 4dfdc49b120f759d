"""CUDA151: several trainer processes share one GPU."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, alike, gib, healthy, named, node
from verl_doctor.toolkit.collectors.gpu.gpus import CONTEXT, Device, Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

# verl's names of the actors that hold colocated roles (verl/single_controller/ray/base.py).
_WORKERS = ("WorkerDict", "FusedWorker")
_TRAINER = Holder(
    pid=11,
    memory=60_000,
    role="ray worker",
    title="ray::WorkerDict.actor_rollout_update_actor",
    mine=True,
    parent=2,
)
_ENGINE = Holder(pid=12, memory=40_000, role="engine", title="VLLM::EngineCore", mine=True, parent=11)
_SERVER = Holder(pid=13, memory=500, role="ray worker", title="ray::vLLMHttpServer", mine=True, parent=2)
_OTHER = Holder(
    pid=21,
    memory=50_000,
    role="ray worker",
    title="ray::WorkerDict.critic_update_critic",
    mine=True,
    parent=2,
)
_FOREIGN = Holder(
    pid=31, memory=50_000, role="ray worker", title="ray::WorkerDict.actor_update_actor", parent=30
)


def _examples() -> list[Example]:
    return [
        Example("an idle node", (node(),)),
        Example("a trainer and its engine", (node(healthy(holders=(_TRAINER, _ENGINE, _SERVER))),)),
        Example(
            "an engine's own Ray workers",
            (
                node(
                    healthy(
                        holders=(
                            _TRAINER,
                            Holder(pid=14, memory=40_000, role="ray worker", title="ray::RayWorkerWrapper"),
                        )
                    )
                ),
            ),
        ),
        Example(
            "roles in separate processes",
            (node(healthy(holders=(_TRAINER, _ENGINE, _OTHER))),),
            "2 trainer processes share GPU 0",
        ),
        Example("another job", (node(healthy(3, holders=(_TRAINER, _FOREIGN))),), "of different jobs"),
        Example(
            "two jobs on all of them",
            (node(*(healthy(number, holders=(_TRAINER, _FOREIGN)) for number in range(8))),),
            "2 trainer processes share each of GPUs 0-7, of different jobs",
        ),
    ]


@check("CUDA151", severity="warning", requires={"CUDA140"}, examples=_examples)
def several_trainers_on_one_gpu(gpus: Gpus) -> Iterator[Finding]:
    """Several trainer processes share one GPU.

    ## Why it matters

    Roles that share a GPU (actor, critic, reference) must run in one process, verl's `WorkerDict`: memory
    that one frees can then be used by the next. The allocators of two processes keep and fragment their
    memory, and the first time both peak together, one runs out of memory. Two jobs on one GPU fail in the
    same way, later.

    ## How to fix

    Two jobs: give each its own GPUs, with CUDA_VISIBLE_DEVICES for each Ray cluster, or end one. One job: let
    its roles share a resource pool, so that verl puts them into one worker group.
    """
    for (number, jobs), devices in alike(gpus.sound, _crowd).items():
        if number > 1:
            share = "share" if len(devices) == 1 else "share each of"
            yield Finding(
                f"{number} trainer processes {share} {named(devices)}"
                + (", of different jobs" if jobs > 1 else ""),
                Evidence(
                    found="; ".join(
                        f"GPU {device.index}: {_listed(_trainers(device))}" for device in devices
                    ),
                    wanted="one",
                    read_from=f"{NVML}, driver {gpus.driver}",
                ),
                remedy="give each job its own GPUs, or end one of them"
                if jobs > 1
                else "let the roles share one worker group",
                subject=about(devices),
            )


def _crowd(device: Device) -> tuple[int, int]:
    """The number of trainer processes that hold memory on the GPU, and of their jobs."""
    trainers = _trainers(device)
    return len(trainers), len({holder.parent for holder in trainers})


def _trainers(device: Device) -> list[Holder]:
    return [holder for holder in device.holders if _trains(holder)]


def _trains(holder: Holder) -> bool:
    is_one = holder.role == "trainer" or any(name in holder.title for name in _WORKERS)
    return is_one and (holder.memory or 0) >= CONTEXT


def _listed(holders: list[Holder]) -> str:
    return ", ".join(f"{holder.title} ({holder.pid}, {gib(holder.memory or 0)})" for holder in holders)

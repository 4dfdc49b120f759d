"""LOAD112: the page cache cannot hold the weights, so each reader fetches them from the disk again."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import GIB, SEVEN_BILLION, job, memory_left, named, readers
from verl_doctor.checks.shared.configuration import NODES, number_of
from verl_doctor.checks.shared.job_here import HERE, gpus_used
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_KL = "actor_rollout_ref.actor.use_kl_loss=True"


def _example(gib: int, *words: str, group: int = 0, number: int = 8) -> tuple[object, ...]:
    groups = (Group("/sys/fs/cgroup/job", memory=group * GIB, memory_used=0),) if group else ()
    limits = an_h200_node(healthy(groups=groups))
    return (
        job(*words),
        SEVEN_BILLION,
        HostMemory(total=gib * GIB, available=gib * GIB),
        limits,
        gpus(number),
        HERE,
    )


def _examples() -> list[Example]:
    return [
        Example("enough memory", _example(64)),
        Example("the job runs elsewhere", _example(8, number=0)),
        Example(
            "16 GiB of weights in 12",
            _example(12, _KL),
            "12.0 GiB of memory are left for 16.0 GiB of weights",
        ),
        Example("a container with a limit", _example(500, group=8), "8.0 GiB of memory are left"),
    ]


@check("LOAD112", severity="warning", examples=_examples)
def weights_larger_than_memory(
    configuration: Configuration | Unknown,
    files: ModelFiles,
    memory: HostMemory | Unknown,
    limits: HostLimits | Unknown,
    resources: Resources,
    here: JobHere,
) -> Iterator[Finding]:
    """The page cache cannot hold the weights, so each reader fetches them from the disk again.

    ## Why it matters

    In a verl job the same weights are read several times on each node: by every trainer process, and again
    for the reference model and for vLLM if it reads any. The first reader brings them into the page cache for
    all, if they fit beside everything else in memory.

    ## How to fix

    Give the container more memory, run fewer processes, or use a 16-bit model. `use_shm` and warming up do
    not help: both take the same memory.
    """
    number = gpus_used(here, resources, configuration)
    left = memory_left(memory, limits)
    if not number or files.bytes <= left:
        return
    who = readers(configuration, number)
    nodes = number_of(configuration, NODES) or 1
    yield Finding(
        (
            f"{in_bytes(left)} of memory are left for {in_bytes(files.bytes)} of weights: each process "
            "reads them from the disk again"
        ),
        Evidence(
            found=f"{in_bytes(left)}, the page cache included",
            wanted=(
                f"{in_bytes(files.bytes)}, which {named(who)} read, with "
                f"{counted(number, 'process', 'processes')}"
            )
            + (f" on each of {nodes} nodes" if nodes > 1 else ""),
            read_from=f"{files.folder}, /proc/meminfo",
        ),
        subject=Subject("memory", "host"),
        remedy="give the job more memory on this machine; neither use_shm nor warming up helps",
    )

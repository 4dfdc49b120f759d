"""HOST110: the machine has less memory than the job will need."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from verl_doctor.checks.shared.configuration import GPUS, NODES, WORKERS, configured, number_of
from verl_doctor.checks.shared.hidden_groups import hidden_groups
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_reference
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.model.size import ModelSize
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_ACTOR = "actor_rollout_ref.actor.fsdp_config"
_REF = "actor_rollout_ref.ref.fsdp_config.param_offload"
_GIB = 1 << 30
# A trainer, an engine and its worker, with CUDA. An agent worker takes 0.5 to 0.8 GB with vLLM 0.31 for CPUs.
_A_GPU, _A_WORKER = 6 * _GIB, 0.8 * _GIB
# The part of a GPU's memory for weights, gradients and the optimizer; the rest is for activations.
_OF_A_GPU = 0.6
_8B = ModelSize(folder="/models/8b", parameters=8_000_000_000)
_OFFLOAD = (f"{_ACTOR}.param_offload=True", f"{_ACTOR}.optimizer_offload=True")


def _example(
    gib: int, *words: str, size: ModelSize = _8B, group: int = 0, number: int = 8
) -> tuple[object, ...]:
    groups = (Group("/sys/fs/cgroup/job", memory=group * _GIB, memory_used=0),) if group else ()
    return (
        configured(*words)[0],
        size,
        HostMemory(total=gib * _GIB, available=gib * _GIB),
        an_h200_node(healthy(groups=groups)),
        gpus(number),
    )


def _irrelevant(configuration: Configuration, resources: Resources, limits: HostLimits) -> str | None:
    if not resources.gpus:
        return "no GPU is visible on this machine, so the job runs elsewhere"
    if limits.raylets:
        return "Ray is already running here, and its job already holds its memory"
    strategy = configuration.get("actor_rollout_ref.actor.strategy")
    return (
        None
        if strategy in ("fsdp", "fsdp2")
        else f"the memory that the strategy {strategy} needs is not known"
    )


def _examples() -> list[Example]:
    return [
        Example("no offload", _example(200)),
        Example("offload and enough memory", _example(500, *_OFFLOAD)),
        Example("two nodes share it", _example(160, *_OFFLOAD, "trainer.nnodes=4")),
        Example("a login node", _example(16, *_OFFLOAD, number=0)),
        Example(
            "offload although the GPUs have room",
            _example(120, *_OFFLOAD),
            "the job needs about 177 GiB of memory",
        ),
        Example("a limit of the container", _example(2000, *_OFFLOAD, group=128), "128 GiB are available"),
        Example(
            "70 billion parameters on one node",
            _example(500, *_OFFLOAD, size=ModelSize(folder="/models/70b", parameters=70_000_000_000)),
            "the job needs",
        ),
    ]


@check("HOST110", severity="warning", applies=_irrelevant, unjudged=hidden_groups, examples=_examples)
def memory_too_small(
    configuration: Configuration,
    size: ModelSize,
    memory: HostMemory,
    limits: HostLimits,
    resources: Resources,
) -> Iterator[Finding]:
    """The machine has less memory than the job will need.

    ## Why it matters

    FSDP keeps what it offloads in the machine's memory: four bytes for each parameter and eight for its
    optimizer state, spread over the nodes. Near the limit Ray kills workers (`Task was killed due to the node
    running low on memory`), or the kernel does, without a message.

    ## How to fix

    Offload less if the GPUs have room, or use more nodes, fewer agent workers or a higher container limit.
    The need is an estimate; the finding shows the formula.
    """
    number = number_of(configuration, GPUS) or len(resources.gpus or ())
    nodes = number_of(configuration, NODES) or 1
    parts = list(_bytes_a_parameter(configuration))
    workers = number_of(configuration, WORKERS) + 4
    # One process of the job reads all weights in single precision before they are sharded.
    held = size.parameters * sum(amount for amount, _ in parts) / nodes
    need = held + 4 * size.parameters + number * _A_GPU + workers * _A_WORKER
    group = limits.shell.groups.memory
    left = min(memory.available or float("inf"), group.memory_left if group else float("inf"))
    if need <= left or left == float("inf"):
        return
    words = " + ".join(f"{amount} B {what}" for amount, what in parts) or "nothing offloaded"
    yield Finding(
        f"the job needs about {in_bytes(need)} of memory, but only {in_bytes(left)} are available",
        Evidence(
            found=f"{in_bytes(left)} left"
            + (f" of {in_bytes(group.memory)} in {group.folder}" if group and group.memory else ""),
            wanted=(
                f"{size.parameters / 1e9:.1f} billion parameters x ({words}) / {nodes} nodes + 4 B each "
                f"while they are read + {number} GPUs x {in_bytes(_A_GPU)} + {workers} workers x "
                f"{in_bytes(_A_WORKER)}"
            ),
            read_from=f"{size.folder}, {configuration.name}",
        ),
        subject=Subject("memory", "host"),
        remedy=_remedy(size, number * nodes, parts, resources, _fewer_workers(configuration, need - left)),
    )


def _fewer_workers(configuration: Configuration, lacking: float) -> str:
    """The override for the number of agent workers with which the job fits; "" if even one is too many."""
    left = number_of(configuration, WORKERS) - ceil(lacking / _A_WORKER)
    return f"{WORKERS}={left}" if left >= 1 else ""


def _bytes_a_parameter(configuration: Configuration) -> Iterator[tuple[int, str]]:
    """Yield the bytes in host memory for each parameter, and what they hold."""
    if configuration.get(f"{_ACTOR}.offload_policy") is True:
        yield 16, "weights, gradients and optimizer (offload_policy)"
    else:
        if configuration.get(f"{_ACTOR}.param_offload") is True:
            yield 2 if configuration.get(f"{_ACTOR}.model_dtype") in ("bf16", "bfloat16") else 4, "weights"
        if configuration.get(f"{_ACTOR}.optimizer_offload") is True:
            yield 8, "optimizer"
    if has_reference(configuration) and configuration.get(_REF) is True:
        yield 4, "reference"


def _remedy(
    size: ModelSize, everywhere: int, parts: list[tuple[int, str]], resources: Resources, fewer: str
) -> str:
    smallest = min((gpu.memory for gpu in resources.gpus or ()), default=0) << 20
    on_each = 16 * size.parameters / everywhere if everywhere else 0.0
    if parts and on_each < _OF_A_GPU * smallest:
        return (
            f"set {_ACTOR}.optimizer_offload=False first, then param_offload: the GPUs have room for"
            f" {in_bytes(on_each)} each without offload"
        )
    if fewer:
        return (
            f"set {fewer}: each agent worker takes about {in_bytes(_A_WORKER)}; or use more nodes, or raise "
            "the limit"
        )
    return "use more nodes, which share the memory, or raise the limit; fewer agent workers are not enough"

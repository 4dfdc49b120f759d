"""HOST111: Ray runs with lower limits than this shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits, Limit, Limits
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes, listed

_POD = (Group("/sys/fs/cgroup/system.slice/ray.service", pids=512, pids_used=200),)


def _examples() -> list[Example]:
    return [
        Example("no Ray", (an_h200_node(),)),
        Example("the same", (an_h200_node(healthy(), healthy(7)),)),
        Example(
            "more than this shell", (an_h200_node(healthy(files=Limit(soft=1024, hard=4096)), healthy(7)),)
        ),
        Example(
            "a little lower, but high enough",
            (an_h200_node(healthy(), healthy(7, files=Limit(soft=65536, hard=65536))),),
        ),
        Example(
            "root is exempt from ulimit -u",
            (
                an_h200_node(
                    healthy(), replace(healthy(7, processes=Limit(soft=4096, hard=4096)), exempt=True)
                ),
            ),
        ),
        Example(
            "ulimit was raised after Ray started",
            (an_h200_node(healthy(), healthy(7, files=Limit(soft=1024, hard=1024))),),
            "1024 open files (this shell: 1048576)",
        ),
        Example(
            "a service with limits of its own",
            (an_h200_node(healthy(), healthy(7, groups=_POD)),),
            "512 processes and threads",
        ),
        Example(
            "several raylets",
            (an_h200_node(healthy(), healthy(7, cpus=4), healthy(8, cpus=8)),),
            "2 raylets run with lower limits",
        ),
        Example(
            "pinned to few CPUs", (an_h200_node(healthy(), healthy(7, cpus=4)),), "4 CPUs (this shell: 32)"
        ),
    ]


@check("HOST111", severity="warning", examples=_examples)
def raylet_limits_lower(limits: HostLimits) -> Iterator[Finding]:
    """Ray runs with lower limits than this shell.

    ## Why it matters

    Ray's workers are children of the raylet and inherit the limits, control group and CPUs with which it was
    started. Limits that the job's shell has or raises do not reach them.

    ## How to fix

    Stop Ray and start it from a shell with this shell's limits. If a service starts it, set LimitNOFILE,
    LimitNPROC, LimitMEMLOCK, TasksMax or MemoryMax in its unit.
    """
    raylets = [(raylet, lower) for raylet in limits.raylets if (lower := list(_lower(raylet, limits.shell)))]
    if not raylets:
        return
    lowest, lower = max(raylets, key=lambda pair: len(pair[1]))
    message = f"{lowest.name} runs with lower limits than this shell: {', '.join(lower)}"
    found = ", ".join(lower)
    if len(raylets) > 1:
        message = (
            f"{len(raylets)} raylets run with lower limits than this shell; {lowest.name}: {', '.join(lower)}"
        )
        found = "; ".join(f"{raylet.name}: {', '.join(less)}" for raylet, less in raylets)
    yield Finding(
        message,
        Evidence(
            found=found,
            wanted="those of this shell",
            read_from=(
                f"{listed((f'/proc/{raylet.pid}/limits' for raylet, _ in raylets), 3)} and the control groups"
            ),
        ),
        subject=Subject("process", "raylet"),
        remedy="stop Ray, and start it again from a shell with these limits",
    )


def _lower(raylet: Limits, shell: Limits) -> Iterator[str]:
    """Yield the raylet's limits that are less than half of the shell's, and low enough to matter."""
    pairs: list[tuple[str, float, float, float]] = [
        ("open files", _soft(raylet.files), _soft(shell.files), 16384),
        ("processes of this user", _processes(raylet), _processes(shell), 32768),
        ("processes and threads", _pids(raylet), _pids(shell), 32768),
        ("CPUs", raylet.cpus or float("inf"), shell.cpus or float("inf"), float("inf")),
    ]
    for what, own, other, plenty in pairs:
        if own < other / 2 and own < plenty:
            yield f"{own:g} {what} (this shell: {_words(other)})"
    sizes: list[tuple[str, float, float]] = [
        ("memory", raylet.groups.memory_limit or float("inf"), shell.groups.memory_limit or float("inf")),
        ("locked memory", raylet.lockable, shell.lockable),
    ]
    for what, own, other in sizes:
        if own < other / 2:
            yield (
                f"{in_bytes(own)} of {what} (this shell: "
                f"{_words(other) if other == float('inf') else in_bytes(other)})"
            )


def _soft(limit: Limit | None) -> float:
    return float("inf") if limit is None or limit.soft is None else limit.soft


def _processes(limits: Limits) -> float:
    return float("inf") if limits.exempt else _soft(limits.processes)


def _pids(limits: Limits) -> float:
    return (group.pids or float("inf")) if (group := limits.groups.pids) else float("inf")


def _words(amount: float) -> str:
    return "unlimited" if amount == float("inf") else f"{amount:.0f}"

"""HOST118: the job may map too little memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_GIB = 1 << 30


def _example(soft: int | None, number: int = 8) -> tuple[object, ...]:
    return an_h200_node(healthy(addresses=Limit(soft=soft, hard=None))), gpus(number), HERE


def _examples() -> list[Example]:
    return [
        Example("no limit", _example(None)),
        Example("no GPU", _example(64 * _GIB, 0)),
        Example("64 GiB, with eight GPUs of 140 GiB", _example(64 * _GIB), "may map 64.0 GiB"),
    ]


@check("HOST118", severity="warning", examples=_examples)
def address_space_limited(limits: HostLimits, resources: Resources, here: JobHere) -> Iterator[Finding]:
    """The limit on memory mappings is too low for the job.

    ## Why it matters

    In every process, CUDA reserves one range of addresses for the machine's memory and that of all its GPUs,
    used or not. When `ulimit -v` is lower, as some batch systems set it, allocations fail with `out of
    memory` although most of the memory is free.

    ## How to fix

    Run `ulimit -v unlimited` in the launch script before Ray starts. If the hard limit is lower, ask the
    administrator: a batch system should limit memory by control groups.
    """
    if not resources.gpus:
        return
    need = (resources.memory or 0) + sum(gpu.memory for gpu in resources.gpus) * (1 << 20)
    for subject in limits.subjects:
        own = subject.addresses
        if own is None or own.soft is None or own.soft >= need:
            continue
        yield Finding(
            (
                f"{subject.name} may map {in_bytes(own.soft)} of memory, but CUDA reserves addresses for "
                f"{in_bytes(need)}"
            ),
            Evidence(
                found=f"Max address space {own.soft}",
                wanted="unlimited",
                read_from=f"/proc/{subject.pid or 'self'}/limits",
            ),
            subject=Subject("limit", "address space"),
            remedy="put ulimit -v unlimited in the launch script, before Ray starts"
            if own.hard is None
            else (
                "ask the administrator to limit memory by control groups instead; this user cannot raise "
                "the limit"
            ),
            severity=hint(here),
        )

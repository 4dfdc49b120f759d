"""HOST114: the kernel has killed processes because memory ran out."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.hidden_groups import hidden_groups
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_JOB = "/sys/fs/cgroup/system.slice/job_7"


def _example(*groups: Group) -> tuple[object, ...]:
    return an_h200_node(healthy(groups=groups)), HERE


def _examples() -> list[Example]:
    return [
        Example("none", _example(Group(_JOB, memory=64 << 30, memory_used=1 << 30, oom_kills=0))),
        Example("no group counts kills", _example()),
        Example(
            "three processes",
            _example(Group(_JOB, memory=64 << 30, memory_used=1 << 30, oom_kills=3)),
            "killed 3 processes",
        ),
        Example("without a limit of its own", _example(Group(_JOB, oom_kills=1)), "killed 1 process"),
    ]


@check("HOST114", severity="warning", unjudged=hidden_groups, examples=_examples)
def processes_were_killed_for_memory(limits: HostLimits, here: JobHere) -> Iterator[Finding]:
    """The kernel has killed processes because memory ran out.

    ## Why it matters

    A worker that is killed this way leaves `Worker exit detail: ... connection error code 2. End of file` in
    Ray's log, which does not mention memory; only the control group's `memory.events` counts it (`oom_kill`).
    The count covers the group's whole life, so it may come from an earlier job in the same container.

    ## How to fix

    Raise the limit, or need less: use fewer agent workers, smaller batches and a smaller object store, and
    offload to the CPU only what does not fit on the GPUs. On Kubernetes and Slurm the limit is what the job
    requested.
    """
    for subject in limits.subjects:
        group = subject.groups.oom_kills
        if group is None or not group.oom_kills:
            continue
        limit = f"limit {in_bytes(group.memory)}" if group.memory else "no limit of its own"
        used = f", {in_bytes(group.memory_used)} in use" if group.memory_used is not None else ""
        yield Finding(
            (
                f"the kernel has killed {counted(group.oom_kills, 'process', 'processes')} in the control "
                f"group of {subject.name} because memory ran out"
            ),
            Evidence(found=f"oom_kill {group.oom_kills}, {limit}{used}", wanted="0", read_from=group.folder),
            subject=Subject("memory", "control group"),
            remedy=(
                "raise the limit, or reduce what the job needs: fewer agent workers, smaller batches, less "
                "offload"
            ),
            severity=hint(here),
        )

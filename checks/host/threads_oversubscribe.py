"""HOST115: every process of the job gets many threads, together far more than there are CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.host._threads import too_large
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.effective import decided_at, own, row
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _example(*rows: Effective, cpus: int = 128) -> tuple[object, ...]:
    return own(*rows), an_h200_node(healthy(cpus=cpus)), gpus(8), Variables(), configured()[0], HERE


def _examples() -> list[Example]:
    return [
        Example("not set: each Ray worker uses one", _example()),
        Example("one thread", _example(row("OMP_NUM_THREADS", "1", "1", "1"), cpus=8)),
        Example("eight on a large node", _example(row("OMP_NUM_THREADS", "8", "8", "8"))),
        Example("not a number", _example(row("OMP_NUM_THREADS", "4,2", "4,2", "4,2"), cpus=2)),
        Example(
            "what Slurm sets for one task",
            _example(row("OMP_NUM_THREADS", "128", "128", "128")),
            "OMP_NUM_THREADS=128 gives 24 processes 3072 threads on 128 CPUs",
        ),
        Example(
            "what an image sets, in a small container",
            _example(row("MKL_NUM_THREADS", "16", "16", "16"), cpus=16),
            "MKL_NUM_THREADS=16",
        ),
    ]


@check("HOST115", severity="warning", examples=_examples)
def threads_oversubscribe(
    environment: EffectiveEnvironment,
    limits: HostLimits,
    resources: Resources,
    variables: Variables,
    configuration: Configuration | Unknown,
    here: JobHere,
) -> Iterator[Finding]:
    """Every process of the job starts many threads, together far more than there are CPUs.

    ## Why it matters

    Slurm and images set OMP_NUM_THREADS to the number of all CPUs, which suits a single process. Each
    trainer, rollout worker and agent worker then starts a pool of that size, whose threads spin while they
    wait and take the CPUs from the processes that feed the GPUs. When the variable is unset, Ray gives each
    worker as many threads as it has CPUs, usually one.

    ## How to fix

    Set it to the number of CPUs available to each process. The fix does so for every such variable that is
    too large.
    """
    for pool in too_large(environment, limits, resources, variables, configuration):
        name = pool.row.name
        yield Finding(
            f"{name}={pool.size} gives {pool.processes} processes {pool.size * pool.processes} threads"
            f" on {pool.cpus.amount:g} CPUs",
            Evidence(
                found=f"{pool.size}, from {pool.row.decided_by}",
                wanted=(
                    f"{pool.right} = {pool.cpus.amount:g} CPUs / {pool.processes} trainers, rollout and "
                    "agent workers"
                ),
                read_from=pool.cpus.by,
            ),
            location=decided_at(pool.row),
            remedy=f"set {name}={pool.right}",
            severity=hint(here),
            fix="thread-variables",
            subject=Subject("variable", name),
        )

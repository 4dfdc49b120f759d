"""Thread pools that libraries create in every process of the job, sized by environment variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.checks.shared.configuration import GPUS, WORKERS, number_of
from verl_doctor.checks.shared.ray_cpus import Bound, cpus_of
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown

LEAN = "RAY_worker_num_grpc_internal_threads"
"""With the value 1 each Ray worker has half as many threads."""

_POOLS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
# A few times as many threads as CPUs do no harm: most of them wait.
_TIMES = 8


@dataclass(frozen=True)
class Pool:
    """A variable giving each of the job's `processes` `size` threads, where `right` would fit the CPUs."""

    row: Effective
    size: int
    right: int
    processes: int
    cpus: Bound


def too_large(
    environment: EffectiveEnvironment,
    limits: HostLimits,
    resources: Resources,
    variables: Variables,
    configuration: Configuration | Unknown,
) -> Iterator[Pool]:
    """Yield pools with which trainers, rollout and agent workers start far more threads than CPUs."""
    number = number_of(configuration, GPUS) or len(resources.gpus or ())
    processes = 2 * number + (number_of(configuration, WORKERS) or 8)
    cpus = cpus_of(limits.subjects[0], variables)
    if cpus is None:
        return
    right = max(1, int(cpus.amount / processes))
    for name in _POOLS:
        row = environment.get(name)
        text = (row.worker.text if row else None) or ""
        if row is not None and text.isdecimal():
            size = int(text)
            if size > right and size * processes >= _TIMES * cpus.amount:
                yield Pool(row, size, right, processes, cpus)

"""What a Ray node with a job needs: workers, threads, open files, time.

Measured on 2026-11-21 with Ray 2.60.0 and Python 3.11 on a machine with 2 cores; a preloaded library made
sysconf and sched_getaffinity report 16, 64 and 192:

| cores | 2 | 16 | 64 | 192 |
|---|---|---|---|---|
| threads of `ray start --head` with its dashboard | 176 | 348 | 423 | 585 |
| of which the GCS server's and the raylet's | 26, 29 | 58, 51 | 114, 71 | 242, 103 |
| threads of a worker, with torch and the OMP_NUM_THREADS=1 that Ray sets | 25 | 46 | 53 | 53 |
| the same with RAY_worker_num_grpc_internal_threads=1 | | | 26 | |
| threads of a driver, where numpy's OpenBLAS has its own | 29 | 64 | 120 | 120 |

Open files: 51 in the raylet plus 5 for each worker; 65 in the GCS server plus 3 for each worker. Threads of a
vLLM 0.31.0 engine for CPUs: 13, and 46 in its worker. What CUDA, NCCL and compilers add for each GPU is an
estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_doctor.checks.shared.configuration import WORKERS, number_of
from verl_doctor.checks.shared.ray_cpus import cpus_of, given_cpus
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.import_ import RayImport
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown

REGISTER = "RAY_worker_register_timeout_seconds"
# In verl's default configuration as of 0.9.1: TaskRunner, reward workers, and the units and controller of its
# queue.
_OTHER_ACTORS = 18
_DEFAULT_WORKERS = 8
_PROCESSES_A_GPU = 3  # trainer, rollout server, rollout worker
_LEAN_WORKER = 26
_THREADS_A_GPU = 100


def actors(configuration: Configuration | Unknown, gpus: int) -> int:
    """The number of Ray workers that a job has on a node with this many GPUs."""
    return _PROCESSES_A_GPU * gpus + (number_of(configuration, WORKERS) or _DEFAULT_WORKERS) + _OTHER_ACTORS


def started_at_once(ray_cpus: float, limits: HostLimits) -> int:
    """The workers that Ray starts for the first driver: one per CPU it offers, up to the machine's CPUs.

    `maximum_startup_concurrency` in ray/_private/services.py; Ray 2.60 offering 12 CPUs on a machine with 2
    starts 2.
    """
    return int(min(ray_cpus, limits.online or ray_cpus))


def threads_needed(cores: int, workers: int, gpus: int, *, running: bool, lean: bool) -> int:
    """Threads that a job adds on a node with this many cores: Ray's unless `running`, and its workers'.

    gRPC starts several per core in every process, up to a limit, and OpenBLAS up to 64 in the driver,
    where nothing sets OMP_NUM_THREADS. A worker is `lean` with RAY_worker_num_grpc_internal_threads=1. NCCL,
    CUDA and the compiler add threads for each GPU.
    """
    ray = 330 + int(1.4 * cores)
    usual = 22 + 2 * min(cores, 16)
    driver = usual + min(cores, 64)
    worker = min(_LEAN_WORKER, usual) if lean else usual
    return (0 if running else ray) + driver + workers * worker + gpus * _THREADS_A_GPU


def files_needed(workers: int) -> int:
    """The files (sockets, logs) that the GCS server, which has most, keeps open with so many Ray workers."""
    return 128 + 5 * workers


@dataclass(frozen=True)
class Registration:
    """The number of workers that start at once on these CPUs, and the seconds for registering.

    They are the seconds that the workers may need to register, and those that Ray allows.
    """

    workers: int
    cpus: float
    needed: float
    allowed: float

    @property
    def is_too_slow(self) -> bool:
        """Whether registration may take more than half of the time allowed."""
        return self.needed > self.allowed / 2

    @property
    def right(self) -> int:
        """A sufficient timeout: four times the seconds needed, in whole minutes."""
        return 60 * math.ceil(4 * self.needed / 60)


def registration(
    ray_import: RayImport,
    ray: RayCpus | Unknown,
    limits: HostLimits,
    variables: Variables,
    job: JobVariables,
    configuration: Configuration | Unknown,
) -> Registration:
    """How long Ray's workers may take to register here, computed from the measured import."""
    bound = cpus_of(limits.subjects[0], variables)
    given = job.get(REGISTER)
    counted = 0 if isinstance(ray, Unknown) else ray.counted
    ray_cpus = limits.raylets[0].ray_cpus if limits.raylets else given_cpus(configuration)
    workers = started_at_once(ray_cpus or counted or limits.online or 1, limits)
    needed = ray_import.seconds * max(1.0, workers / bound.amount) if bound else ray_import.seconds
    allowed = float(given) if given.isdecimal() else 60.0
    return Registration(workers, bound.amount if bound else 1, needed, allowed)

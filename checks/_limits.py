"""What the rules about limits share: how many CPUs it may use, and what Ray and vLLM need of threads and files.

Measured on 2026-11-21 with Ray 2.60.0, Python 3.11 on a machine with 2 cores, and with a library loaded before all others that
makes sysconf and sched_getaffinity answer 16, 64 and 192. Threads of `ray start --head` with its dashboard: 175, 348,
423 and 585, of which the GCS server 26, 58, 114 and 242 and the raylet 29, 51, 71 and 103. Of each worker, with torch and with
the OMP_NUM_THREADS=1 that Ray sets: 25, 46, 53 and 53; with RAY_worker_num_grpc_internal_threads=1 there are 26 on 64 cores. Of a driver, where OpenBLAS has its own: 29, 64, 120 and 120. Open files of
the raylet: 51 and 5 for each worker, of the GCS server 65 and 3. An engine of vLLM 0.31.0 for CPUs: 13
and, in its worker, 46. What CUDA and NCCL add is an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_job_here import JobHere
from verl_doctor.toolkit.fact_limits import ControlGroups, Group, HostLimits, Limit, Limits
from verl_doctor.toolkit.fact_ray_tickets import RayTickets
from verl_doctor.toolkit.fact_resources import Gpu, Resources
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Severity

WORKERS = "actor_rollout_ref.rollout.agent.num_workers"
GPUS = "trainer.n_gpus_per_node"
REGISTER = "RAY_worker_register_timeout_seconds"
NUM_CPUS = ("ray_kwargs.ray_init.num_cpus", "ray_init.num_cpus")
_QUEUE = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
_SLURM = "SLURM_CPUS_ON_NODE"
# Of verl's default configuration, as of 0.9.1: TaskRunner, reward workers, and the units and controller of its queue.
_OTHER_ACTORS = 18
_DEFAULT_WORKERS = 8
_TICKETS = 3  # of verl 0.7 to 0.9, where its sources do not say
_LEAN_WORKER = 26
_THREADS_A_GPU = 100  # an estimate; the engine for CPUs has 60 in two processes
_PROCESSES_A_GPU = 3  # trainer, rollout server, rollout worker


@dataclass(frozen=True)
class Bound:
    """An amount, what sets it in words, and where that was read."""

    amount: float
    by: str
    read_from: str = ""


HERE = JobHere("a GPU is here")
PERHAPS_HERE = JobHere("run.sh would start it here", certain=False)


def hint(here: JobHere) -> Severity | None:
    """The severity of what matters only if the job runs here, and that is not certain; None where it is."""
    return None if here.certain else "info"


def at_most_warning(here: JobHere) -> Severity | None:
    """The severity of what stops Ray on this machine whether or not GPUs are used here; None where a job runs for certain."""
    return None if here.certain else "warning"


def gpus_used(here: JobHere, resources: Resources, configuration: Configuration | Unknown) -> int:
    """The GPUs of this machine that the job uses: none where it is not certain that it runs here, as on a head node."""
    return (number_of(configuration, GPUS) or len(resources.gpus or ())) if here.certain else 0


def cpus_of(limits: Limits, variables: Variables) -> Bound | None:
    """The CPUs that a process may use, and what says so. Slurm does not always enforce what it gave."""
    quota, within = limits.groups.cpus, limits.groups.cpuset
    bounds = [
        Bound(limits.allowed, "the CPU affinity") if limits.allowed else None,
        Bound(quota.cpus, f"the CPU quota of {quota.folder}") if quota and quota.cpus else None,
        Bound(within.cpuset, f"the CPU set of {within.folder}") if within and within.cpuset else None,
        Bound(int(given), _SLURM) if (given := variables.get(_SLURM)).isdigit() and int(given) else None,
    ]
    return min(filter(None, bounds), key=lambda bound: bound.amount, default=None)


def cpus_to_tell(
    configuration: Configuration | Unknown, gpus: int, cpus: float, tickets: RayTickets | Unknown
) -> int:
    """The number of CPUs to tell Ray of: those that there are, but no fewer than verl asks Ray for, or it waits for ever."""
    return max(int(cpus), tickets_for(configuration, number_of(configuration, GPUS) or gpus, tickets))


def tickets_for(configuration: Configuration | Unknown, gpus: int, tickets: RayTickets | Unknown) -> int:
    """The CPUs that verl asks Ray for on one machine: with each GPU, for its TaskRunner, and for each part of its queue."""
    units = 0
    if not isinstance(configuration, Unknown) and configuration.get("transfer_queue.enable") is not False:
        units = number_of(configuration, _QUEUE)
    each = _TICKETS if isinstance(tickets, Unknown) else tickets.of_each_gpu
    # An actor that asks for none needs one while it is placed.
    return each * gpus + 1 + (units + 1 if units else 0) + 1


def number_of(configuration: Configuration | Unknown, key: str) -> int:
    """A whole number of the job's configuration; 0 when it is not known."""
    return 0 if isinstance(configuration, Unknown) else int(configuration.number(key) or 0)


def num_cpus_key(configuration: Configuration | Unknown) -> str:
    """The key by which this verl tells Ray of CPUs."""
    known = () if isinstance(configuration, Unknown) else NUM_CPUS
    return next((key for key in known if configuration.has(key)), NUM_CPUS[0])  # type: ignore[union-attr]


def told_cpus(configuration: Configuration | Unknown) -> int:
    """The CPUs that the launch command tells Ray of; 0 when it does not."""
    return max(number_of(configuration, key) for key in NUM_CPUS)


def actors(configuration: Configuration | Unknown, gpus: int) -> int:
    """The Ray workers that a job has on a node with this many GPUs."""
    return _PROCESSES_A_GPU * gpus + (number_of(configuration, WORKERS) or _DEFAULT_WORKERS) + _OTHER_ACTORS


def threads_needed(cores: int, workers: int, gpus: int, *, running: bool, lean: bool) -> int:
    """The threads that a job adds on a node with so many cores: Ray's own unless it is `running`, and its workers.

    gRPC starts some for each core in every process, up to a limit, and OpenBLAS up to 64 in the driver, where nobody sets
    OMP_NUM_THREADS. A worker is `lean` with RAY_worker_num_grpc_internal_threads=1. For each GPU there are NCCL's, CUDA's
    and the compiler's.
    """
    ray = 330 + int(1.4 * cores)
    usual = 22 + 2 * min(cores, 16)
    driver = usual + min(cores, 64)
    worker = min(_LEAN_WORKER, usual) if lean else usual
    return (0 if running else ray) + driver + workers * worker + gpus * _THREADS_A_GPU


def register_timeout(needed: float) -> int:
    """Seconds for workers that may need so many: four times as many, in whole minutes."""
    return 60 * math.ceil(4 * needed / 60)


def files_needed(workers: int) -> int:
    """The files that the GCS server, which has the most, keeps open with so many Ray workers: sockets and logs."""
    return 128 + 5 * workers


def an_h200_node(shell: Limits | None = None, *raylets: Limits) -> HostLimits:
    """The limits of a healthy node, for examples: nothing is in the way."""
    return HostLimits(shell or healthy(), raylets, 32, 150, 150, 2062399, 4194304, 1048576)


def healthy(pid: int = 0, cpus: int = 32, groups: tuple[Group, ...] = (), **others: Limit) -> Limits:
    """A process without limits that matter, for examples."""
    unlimited = Limit(None, None)
    limits = {"files": Limit(1048576, 1048576), "processes": unlimited, "locked": unlimited, **others}
    return Limits(pid, cpus, groups=ControlGroups(groups), told=float(cpus) if pid else None, **limits)  # type: ignore[arg-type]


def gpus(number: int, cpus: float = 32) -> Resources:
    """A machine with so many GPUs, for examples."""
    return Resources((Gpu("NVIDIA H200", 143771),) * number, cpus, 250 << 30)

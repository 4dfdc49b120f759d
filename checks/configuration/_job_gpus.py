"""The GPUs that a job can get on this machine, and whether it starts a Ray of its own that counts them."""

from __future__ import annotations

from verl_doctor.checks.shared.configuration import NODES
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import counted

VISIBLE = "CUDA_VISIBLE_DEVICES"
RAY_ADDRESS = "RAY_ADDRESS"
RAY_INIT = "ray_kwargs.ray_init"
ALLOCATION = "SLURM_JOB_ID"
TO_GENERATE, NODES_TO_GENERATE = "rollout.n_gpus_per_node", "rollout.nnodes"
_OTHER_MACHINES = frozenset({"srun", "sbatch", "ssh", "kubectl"})


def gpus_to_generate(configuration: Configuration) -> float:
    """The GPUs beside those of the training, in programs whose own configuration has them.

    Other programs do not read the setting.
    """
    if configuration.default(TO_GENERATE) is MISSING:
        return 0
    return (configuration.number(TO_GENERATE) or 0) * (configuration.number(NODES_TO_GENERATE) or 0)


def usable_gpus(
    resources: Resources | Unknown, variables: JobVariables | Unknown, launch: Launch | Unknown
) -> tuple[int, str] | None:
    """The number of GPUs that the job's own Ray counts, and the clause that states it; None if unknown."""
    if isinstance(variables, Unknown) or isinstance(launch, Unknown):
        return None
    visible = visible_gpus(variables, launch)
    if visible is not None and (VISIBLE in variables.places or has_gpus(resources)):
        return visible, f"{VISIBLE} shows {counted(visible, 'GPU')}"
    if isinstance(resources, Unknown) or not resources.gpus:
        return None
    return len(resources.gpus), f"this machine has {counted(len(resources.gpus), 'GPU')}"


def joins_ray(rays: RayAddresses | Unknown) -> bool:
    """Whether `ray.init()` finds the address of a Ray; not one that another driver started for itself."""
    return not isinstance(rays, Unknown) and rays.taken is not None


def starts_own_ray(configuration: Configuration, variables: JobVariables, launch: Launch) -> bool:
    """Whether the job starts its own Ray on this node alone, which counts the GPUs itself."""
    batch = (launch.nodes or launch.gpus_per_node) and not variables.has(ALLOCATION)
    names = {name.rpartition("/")[2] for name in launch.command.names} if launch.command else set()
    elsewhere = (
        launch.submitted
        or launch.ray_starts
        or variables.has(RAY_ADDRESS)
        or batch
        or names & _OTHER_MACHINES
    )
    set_by_job = any(
        configuration.get(f"{RAY_INIT}.{name}") not in (None, MISSING) for name in ("address", "num_gpus")
    )
    nvidia = configuration.get("trainer.device") in ("cuda", MISSING)
    return nvidia and not elsewhere and not set_by_job and configuration.get(NODES) == 1


def has_gpus(resources: Resources | Unknown) -> bool:
    """Whether this machine has GPUs: settings in the shell of a login node are not those of the job."""
    return isinstance(resources, Resources) and bool(resources.gpus)


def visible_gpus(variables: JobVariables, launch: Launch) -> int | None:
    """The most GPUs that the variable can name; None unless it is certainly set."""
    if VISIBLE not in variables.values or any(
        setting.name == VISIBLE and setting.conditional for setting in launch.settings
    ):
        return None
    return sum(bool(entry.strip()) for entry in variables.values[VISIBLE].split(","))

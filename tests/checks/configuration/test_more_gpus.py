"""CFG111: a job that starts its own Ray is limited to the machine's GPUs; one that joins a cluster is not."""

from __future__ import annotations

import pytest

from verl_doctor.checks.configuration.more_gpus_than_there_are import more_gpus_than_there_are
from verl_doctor.checks.shared.configuration import GPUS, NODES, SCRIPT, configured
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.ray.addresses import LocalRay, RayAddresses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Severity

_OTHERS = (LocalRay("10.0.0.5:6379"),)


@pytest.mark.parametrize(
    ("rays", "severity"),
    [
        (Absent("Ray is not installed"), "error"),
        (RayAddresses(), "error"),
        (RayAddresses((ray_place(source="raylet"),), _OTHERS), "error"),
        (RayAddresses((ray_place(source="address file"),), _OTHERS), "warning"),
    ],
)  # fmt: skip
def test_ray_of_the_job(rays: RayAddresses | Unknown, severity: Severity) -> None:
    (found,) = more_gpus_than_there_are.judge(
        configured(f"{GPUS}=8", f"{NODES}=1")[0],
        Resources((Gpu("NVIDIA H200", 143771),), 16, 128 << 30),
        JobVariables(),
        Launch(((SCRIPT, "shell script"),)),
        rays,
    )
    assert found.severity == severity
    assert (found.correction is not None) == (severity == "error")


@pytest.mark.parametrize(
    ("launch", "variables", "severity"),
    [
        (Launch((), command=Command("m", (), SCRIPT, 3, names=("srun", "bash", "python3"))), {}, "warning"),
        (Launch((), command=Command("m", (), SCRIPT, 3, names=("docker", "bash", "python3"))), {}, "error"),
        (Launch((), nodes=1, gpus_per_node=8), {}, "warning"),
        (Launch((), nodes=1, gpus_per_node=8), {"SLURM_JOB_ID": "7"}, "error"),
    ],
    ids=["srun", "docker", "before sbatch", "in its allocation"],
)
def test_login_node_with_a_gpu_of_its_own(
    launch: Launch, variables: dict[str, str], severity: Severity
) -> None:
    (found,) = more_gpus_than_there_are.judge(
        configured(f"{GPUS}=8", f"{NODES}=1")[0],
        Resources((Gpu("NVIDIA T4", 15360),), 16, 128 << 30),
        JobVariables(variables),
        launch,
        RayAddresses(),
    )
    assert found.severity == severity

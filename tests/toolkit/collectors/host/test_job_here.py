"""Where a job runs."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.host.job_here import JobHere, job_here
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.facts import Absent, Unknown

NONE = Unknown("")
SCRIPT = Launch((("run.sh", "shell script"),), command=Command("verl.trainer.main_ppo", (), "run.sh", 3))


def raylet(*, mine: bool) -> Processes:
    return Processes((Process(7, 1, "raylet", "raylet", mine, 0.0),))


def test_sources_that_indicate_a_job() -> None:
    assert job_here.collect(Gpus((Device(0, "A"),)), NONE, SCRIPT) == JobHere("a GPU is here")
    assert job_here.collect(NONE, raylet(mine=True), NONE) == JobHere("Ray is up")
    assert job_here.collect(Gpus(), raylet(mine=False), SCRIPT) == JobHere(
        "run.sh would start it here", certain=False
    )


def test_no_source_indicates_a_job() -> None:
    assert isinstance(job_here.collect(Gpus(), Processes(), Launch(())), Absent)
    assert isinstance(job_here.collect(NONE, raylet(mine=False), NONE), Absent)

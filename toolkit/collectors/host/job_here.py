"""Whether a job is to run on this machine, so that its limits matter.

It may be idle now: `Processes` lists what runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.facts import Absent, Unknown, collector


@dataclass(frozen=True)
class JobHere:
    """The evidence (`sign`) that a job runs here. It is `certain` if there is a GPU or this user's Ray is up.

    A launch script alone may also be checked on a login node, from which the job is submitted elsewhere.
    """

    sign: str
    certain: bool = True


@collector()
def job_here(
    gpus: Gpus | Unknown, processes: Processes | Unknown, launch: Launch | Unknown
) -> JobHere | Absent:
    """Look for a GPU, for a raylet of this user, and for a given launch script."""
    if isinstance(gpus, Gpus) and gpus.devices:
        return JobHere("a GPU is here")
    if isinstance(processes, Processes) and any(raylet.mine for raylet in processes.of("raylet")):
        return JobHere("Ray is up")
    if isinstance(launch, Launch) and launch.command is not None:
        return JobHere(f"{launch.command.path} would start it here", certain=False)
    return Absent("no GPU is visible on this machine, this user has no Ray, and no launch script was given")

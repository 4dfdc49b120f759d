"""Fix for HOST117: more time for Ray's workers to register."""

from __future__ import annotations

from verl_doctor.checks.host._ray_needs import REGISTER, registration
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.import_ import RayImport
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding


@fix("more-time-to-register", repairs="HOST117", safety="safe", restart="Ray")
def more_time_to_register(
    _: Finding,
    ray_import: RayImport,
    ray: RayCpus | Unknown,
    limits: HostLimits,
    variables: Variables,
    job: JobVariables,
    configuration: Configuration | Unknown,
) -> list[Change] | Refusal:
    """Give Ray's workers the time to register that the finding computed. Nothing else changes."""
    if place := job.places.get(REGISTER):
        return Refusal(f"{place[0]}:{place[1]} sets it and takes precedence over the shell; change it there")
    at_once = registration(ray_import, ray, limits, variables, job, configuration)
    if not at_once.is_too_slow:
        return Refusal("the workers have enough time")
    until = "the environment is on a local disk"
    return [SetVariable(REGISTER, str(at_once.right), until=until, node_only=True)]

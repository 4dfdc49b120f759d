"""Fix for HOST115: thread pools that fit the CPUs."""

from __future__ import annotations

from verl_doctor.checks.host._threads import too_large
from verl_doctor.checks.shared.variables import variable_of
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding


@fix("thread-variables", repairs="HOST115", safety="safe", restart="Ray and the job")
def thread_variables(
    finding: Finding,
    environment: EffectiveEnvironment,
    limits: HostLimits,
    resources: Resources,
    variables: Variables,
    configuration: Configuration | Unknown,
) -> list[Change] | Refusal:
    """Limit each process to as many threads as it has CPUs, in the variables that allow far more."""
    if finding.location is not None:
        return Refusal(f"{finding.location} sets it and takes precedence over the shell; change it there")
    changes: list[Change] = [
        SetVariable(pool.row.name, str(pool.right))
        for pool in too_large(environment, limits, resources, variables, configuration)
        if pool.row.name == variable_of(finding)
    ]
    return changes or Refusal("the variable is no longer too large")

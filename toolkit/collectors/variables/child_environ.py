"""The environment of a child that stands in for the first process of the job."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine


def child_environ(
    machine: Machine, variables: Variables, job: JobVariables, rollout: RolloutModule | Unknown | None = None
) -> dict[str, str]:
    """Return this shell's variables with the launch files' settings and removals applied.

    With `rollout` it stands in for a process that has begun to start vLLM: verl's defaults for unset
    variables are included. A variable that a launch file sets to an unknown value keeps its value in the
    shell.
    """
    taken = set(variables.values) - set(job.values) - set(job.undetermined)
    kept = {name: value for name, value in machine.environ.items() if name not in taken}
    defaults = rollout.defaults if isinstance(rollout, RolloutModule) else {}
    return {**defaults, **kept} | {name: job.values[name] for name in job.places if name in job.values}

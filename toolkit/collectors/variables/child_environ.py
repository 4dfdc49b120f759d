"""The environment of a child that stands for the process which the job starts with."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine


def child_environ(
    machine: Machine, variables: Variables, job: JobVariables, rollout: RolloutModule | Unknown | None = None
) -> dict[str, str]:
    """This shell's variables, with what the launch files set and without what they take away.

    With `rollout` it stands for a process that has begun to start vLLM: what verl gives to variables without a value counts.
    What a launch file sets to something that reading cannot tell stays as it is in the shell.
    """
    taken = set(variables.values) - set(job.values) - set(job.untold)
    kept = {name: value for name, value in machine.environ.items() if name not in taken}
    defaults = rollout.defaults if isinstance(rollout, RolloutModule) else {}
    return {**defaults, **kept} | {name: job.values[name] for name in job.places if name in job.values}

"""Collects what the environment's compiled packages need and lack."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.compiled.extensions import Extensions
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine


@collector(timeout=30, kept=True)
def extensions(
    machine: Machine,
    interpreter: Interpreter,
    packages: Packages,
    torch: TorchBuild | Unknown,
    variables: Variables,
    job: JobVariables,
) -> Extensions | Unknown:
    """Simulate the loader for each compiled file, as the job starts it.

    Before that, everything that `import torch` loads is loaded.
    """
    if interpreter.system != "Linux":
        return Absent(f"this is {interpreter.system}")
    from verl_doctor.toolkit.collectors.compiled.extension_survey import survey  # noqa: PLC0415 - a long reader, for Linux alone

    return survey(machine, interpreter, packages, torch, child_environ(machine, variables, job))

"""Whether a Triton kernel compiles and runs, tried on the job's first GPU.

The trial runs in a child of the target's interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import triton_kernel as triton_kernel_probe
from verl_doctor.toolkit.system.child import ending, run_probe

_LIMIT = 60.0  # seconds: importing torch without bytecode caches takes ten and more


@dataclass(frozen=True)
class TritonKernel:
    """The result of one kernel that adds two vectors.

    `step` is the one that failed: "import torch", "import triton", "compile" (the first call) or "run" (the
    second), "" on success. `error` is the last line of its error message. `right`: the sums were correct.
    `seconds` is the duration of each completed step.
    """

    step: str = ""
    error: str = ""
    right: bool = False
    device: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """Whether the kernel ran and computed what it should."""
        return not self.step and self.right


@collector(timeout=_LIMIT + 10)
def triton_kernel(
    machine: Machine,
    interpreter: Interpreter,
    variables: Variables,
    job: JobVariables,
    rollout: RolloutModule | Unknown,
) -> TritonKernel | Unknown:
    """Run a kernel with an empty cache."""
    if not has_device_nodes(machine):
        return Absent("there is no NVIDIA GPU here")
    for package in ("torch", "triton"):
        if not is_on_path(package, interpreter.sys_path):
            return Absent(f"{package} is not installed")
    child = replace(machine, environ=child_environ(machine, variables, job, rollout))
    result = run_probe(child, interpreter.executable, triton_kernel_probe, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    answer, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"no kernel could be tried: {ending(answer, _LIMIT)}")
    step = str(reported.get("step", ""))
    return TritonKernel(
        step=step,
        error=ending(answer, _LIMIT) if step else "",
        right=bool(reported.get("right")),
        device=str(reported.get("device", "")),
        seconds={str(name): float(value) for name, value in reported.get("seconds", {}).items()},
    )

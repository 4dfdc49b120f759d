"""Whether the driver's library works: `cuInit` in a child of the target's interpreter, as in the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda
from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import cuda_init as cuda_init_probe
from verl_doctor.toolkit.system.child import ending, run_probe

VISIBLE = "CUDA_VISIBLE_DEVICES"
_LIMIT = 15.0  # seconds: without persistence mode eight GPUs take about three


@dataclass(frozen=True)
class CudaAnswer:
    """The result in one process.

    `file` is the library that it loaded, `code` what `cuInit` or `cuDeviceGetCount` returned, `name` the
    driver's name for it, `cuda` the newest CUDA that the driver supports (13000 is 13.0). `error` is why
    there is no code, `hangs`: none came within the time limit. `refused` are the driver's device files that
    could not be opened, each with the reason.
    """

    file: str = ""
    code: int | None = None
    name: str = ""
    cuda: int | None = None
    devices: int | None = None
    error: str = ""
    hangs: bool = False
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def works(self) -> bool:
        """Whether there is at least one usable GPU."""
        return self.code == 0 and bool(self.devices)


@dataclass(frozen=True)
class CudaInit:
    """The result in a process of the job and, if that fails, in two others.

    `visible` is its value of CUDA_VISIBLE_DEVICES, None if unset: `all_devices` runs without it. `own_file`
    loads the driver's own library by its path, bypassing the loader's search.
    """

    as_job: CudaAnswer
    visible: str | None = None
    all_devices: CudaAnswer | None = None
    own_file: CudaAnswer | None = None


@collector(timeout=2 * _LIMIT + 15)
def cuda_init(
    machine: Machine,
    interpreter: Interpreter,
    variables: Variables,
    job: JobVariables,
    libcuda: LibCuda | Unknown,
) -> CudaInit | Unknown:
    """Try it as the job would, and if that fails, locate the fault."""
    if not has_device_nodes(machine):
        return Absent("there is no NVIDIA GPU here")
    environ = child_environ(machine, variables, job)
    python = interpreter.executable
    as_job = _query(machine, environ, python, SONAME)
    if isinstance(as_job, Unknown):
        return as_job
    visible = environ.pop(VISIBLE, None)
    if as_job.works or as_job.hangs:  # do not wait a second time for a driver that hangs
        return CudaInit(as_job, visible)
    all_devices = _query(machine, environ, python, SONAME) if visible is not None else None
    own = None if isinstance(libcuda, Unknown) else libcuda.drivers_own
    own_file = _query(machine, environ, python, own.real) if own and own.real != as_job.file else None
    return CudaInit(
        as_job,
        visible,
        all_devices if isinstance(all_devices, CudaAnswer) else None,
        own_file if isinstance(own_file, CudaAnswer) else None,
    )


def _query(machine: Machine, environ: Mapping[str, str], python: str, library: str) -> CudaAnswer | Unknown:
    result = run_probe(replace(machine, environ=environ), python, cuda_init_probe, library, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"{python} could not query the driver's library: {ending(output, _LIMIT)}")
    understood = _understood(reported, str(reported.get("refused", "")) or ending(output, _LIMIT))
    return replace(understood, hangs=output.code is None and understood.code is None)


def _understood(reported: Mapping[str, Any], otherwise: str) -> CudaAnswer:
    """Convert a child's report; `otherwise` is why it has no code."""
    code = reported.get("code")
    return CudaAnswer(
        file=str(reported.get("file", "")),
        code=code,
        name=str(reported.get("name", "")),
        cuda=reported.get("cuda"),
        devices=reported.get("devices"),
        error=otherwise if code is None else "",
        refused=tuple((str(path), str(why)) for path, why in reported.get("refused_devices", ())),
    )

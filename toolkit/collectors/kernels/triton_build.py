"""Whether Triton can compile and link its launchers.

This is tried with Triton's own functions in a child of the target's interpreter.

Triton builds a small C library on the first use of each kernel. Its compiler, its search for libcuda and
whether it links `-lcuda` or `-l:libcuda.so.1` have changed between releases, so the installed code is run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import triton_build as triton_build_probe
from verl_doctor.toolkit.system.child import ending, run_probe

LIBCUDA_PATH = triton_build_probe.VARIABLE
_LIMIT = 30.0  # seconds: half a dozen runs of the compiler, perhaps over a network file system
_COMPILER_TIMEOUT = 15.0  # seconds for one run
_LONGEST = 2000  # characters of a compiler's output


@dataclass(frozen=True)
class TritonBuild:
    """The result for a few lines of C.

    `compiler` is the command that Triton uses, "" if it finds none, and `compiler_version` the first line of
    its version output. `compiler_error` is why nothing at all can be compiled, `hangs` is the command that
    did not end within `patience` seconds; later steps were not tried. `folders` are those that Triton passes
    to the linker; `lookup_error` is what it raises if it finds none. `library` is what it requests from the
    linker, `linked` the file that the linker used, `link_error` its message if it found none.
    `missing_headers` are files that Triton's sources include and the compiler does not find.
    `reads_variable`: this Triton reads TRITON_LIBCUDA_PATH.
    """

    folder: str
    compiler: str = ""
    compiler_version: str = ""
    compiler_error: str = ""
    hangs: str = ""
    patience: float = 0.0
    folders: tuple[str, ...] = ()
    lookup_error: str = ""
    library: str = ""
    linked: str = ""
    link_error: str = ""
    missing_headers: tuple[str, ...] = ()
    reads_variable: bool = False


@collector(timeout=_LIMIT + 10)
def triton_build(
    machine: Machine,
    interpreter: Interpreter,
    variables: Variables,
    job: JobVariables,
    rollout: RolloutModule | Unknown,
) -> TritonBuild | Unknown:
    """Compile as the job would, with the variables that verl sets before it starts vLLM."""
    if not has_device_nodes(machine):
        return Absent("there is no NVIDIA GPU here")
    folders = (Path(entry, "triton") for entry in interpreter.sys_path)
    folder = next((path for path in folders if os.path.isfile(path / "__init__.py")), None)
    if folder is None:
        return Absent("Triton is not installed")
    environ = child_environ(machine, variables, job, rollout)
    child = replace(machine, environ=environ)
    arguments = (str(folder), str(_COMPILER_TIMEOUT))
    result = run_probe(child, interpreter.executable, triton_build_probe, *arguments, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    answer, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"what Triton would compile could not be tried: {ending(answer, _LIMIT)}")
    if "unknown" in reported:
        return Unknown(str(reported["unknown"]))
    return TritonBuild(
        folder=str(folder),
        folders=tuple(map(str, reported.get("folders", ()))),
        missing_headers=tuple(map(str, reported.get("missing_headers", ()))),
        reads_variable=bool(reported.get("reads_variable")),
        compiler=str(reported.get("compiler", "")),
        compiler_version=str(reported.get("version", "")),
        compiler_error=_end(reported.get("compiler_error")),
        hangs=str(reported.get("hangs", ""))[:_LONGEST],
        patience=_COMPILER_TIMEOUT if reported.get("hangs") else 0.0,
        lookup_error=_end(reported.get("lookup_error")),
        library=str(reported.get("library", "")),
        linked=str(reported.get("linked", "")),
        link_error=_end(reported.get("link_error")),
    )


def _end(text: object) -> str:
    """Return the last part of a program's output, which contains the error."""
    return str(text or "").strip()[-_LONGEST:]

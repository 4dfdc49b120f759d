"""The CUDA toolkit and compilers with which a kernel would be compiled while the job runs.

FlashInfer (flashinfer/jit/cpp_ext.py) and torch (torch/utils/cpp_extension.py) search in the same order:
CUDA_HOME, CUDA_PATH, the folder above that of the nvcc on PATH, /usr/local/cuda. They take the first result,
right or wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

VARIABLES = ("CUDA_HOME", "CUDA_PATH")
DEFAULT = "/usr/local/cuda"
LIBRARIES = ("libcudart.so", "libcuda.so")
_LIMIT = 3.0  # seconds for a compiler to print its version; it takes milliseconds
_RELEASE = re.compile(r"release (\d+\.\d+),")
_TARGET = re.compile(r"compute_(\d+)")
# The check in nvcc's own header: `#if __GNUC__ > 15`.
_NEWEST_GCC = re.compile(r"^#if __GNUC__ > (\d+)", re.MULTILINE)
_GCC = re.compile(r"\)\s+(\d+)\.\d+")
_IN_TOOLKIT = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
# The linker's default folders; Debian's own package of the toolkit is spread over /usr.
_LINKER = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")


_INCLUDED = ("/usr/include", "/usr/local/include")


@dataclass(frozen=True)
class CudaToolkit:
    """The toolkit's folder `home`, "" if there is none, and what names it (`given_by`).

    `given_by` is a variable, PATH, or nothing.

    `nvcc` is its compiler, "" if it has none; it reports `release` ("13.0") and `targets` (compute
    capabilities: "9.0"). `unlinkable` are those of a kernel's libraries (`LIBRARIES`) that the linker would
    not find. `on_path` is the first nvcc on PATH, "" without one. `candidate` is another folder that holds
    one: an entry of a list, that of `on_path`, or the default. `ninja` drives a compilation; `compiler` is
    the C++ compiler that nvcc uses, `compiler_given_by` what names it, `cxx` the compiler that links. They
    are "" if missing. `gcc` is its major release, 0 for another compiler, and `newest_gcc` the last that nvcc
    accepts. `lacks` are headers that FlashInfer's sampler includes and that are not found.
    """

    home: str
    given_by: str
    nvcc: str = ""
    release: str = ""
    targets: tuple[str, ...] = ()
    unlinkable: tuple[str, ...] = ()
    on_path: str = ""
    candidate: str = ""
    ninja: str = ""
    compiler: str = ""
    compiler_given_by: str = ""
    cxx: str = ""
    cxx_given_by: str = ""
    gcc: int = 0
    newest_gcc: int = 0
    lacks: tuple[str, ...] = ()


@collector(timeout=15)
def cuda_toolkit(
    machine: Machine, variables: JobVariables, resources: Resources, flashinfer: FlashInfer | Unknown
) -> CudaToolkit | Unknown:
    """Search where FlashInfer and torch do, and query the compilers for their versions."""
    if not resources.gpus:
        return Absent(f"nothing is compiled for GPUs here: {resources.why or 'there is none'}")
    undetermined = [name for name in (*VARIABLES, "PATH", "CC") if name in variables.undetermined]
    if undetermined:
        return Unknown(
            f"{undetermined[0]} is set to something that cannot be determined from the launch files"
        )
    path = variables.get("PATH")
    on_path = _found(machine, "nvcc", path)
    given_by = next((name for name in VARIABLES if variables.get(name)), "")
    if given_by:
        home = variables.get(given_by)
    elif on_path:
        home, given_by = _two_up(on_path), "PATH"
    else:
        home = DEFAULT if os.path.isdir(machine.at(DEFAULT)) else ""
    nvcc = f"{home}/bin/nvcc" if _holds_one(machine, home) else ""
    named = next((name for name in ("CC", "NVCC_CCBIN") if variables.get(name)), "")
    compiler = _found(machine, variables.get(named) or "gcc", path)
    version_line = _output(machine, compiler, "--version").partition("\n")[0]
    gcc = _GCC.search(version_line) if "clang" not in version_line else None
    newest = _NEWEST_GCC.search(machine.read(f"{home}/include/crt/host_config.h") or "") if home else None
    release = _RELEASE.search(_output(machine, nvcc, "--version"))
    return CudaToolkit(
        home=home,
        given_by=given_by,
        nvcc=nvcc,
        release=release[1] if release else "",
        targets=tuple(map(_dotted, _TARGET.findall(_output(machine, nvcc, "--list-gpu-arch")))),
        unlinkable=_unlinkable(machine, home, variables.get("LIBRARY_PATH")),
        on_path=on_path,
        candidate=_candidate(machine, home, on_path),
        ninja=_found(machine, "ninja", path),
        compiler=compiler,
        compiler_given_by=named,
        cxx=_found(machine, variables.get("CXX") or "c++", path),
        cxx_given_by="CXX" if variables.get("CXX") else "",
        gcc=int(gcc[1]) if gcc else 0,
        newest_gcc=int(newest[1]) if newest else 0,
        lacks=()
        if isinstance(flashinfer, Unknown)
        else _lacking(machine, home, variables, flashinfer.headers),
    )


def _unlinkable(machine: Machine, home: str, library_path: str) -> tuple[str, ...]:
    """Return the libraries that are in none of the linker's folders.

    These folders are `-L` of the toolkit and its stubs, LIBRARY_PATH, and the linker's defaults.
    """
    own = [f"{home}/{name}" for name in _IN_TOOLKIT]
    folders = [*own, *(f"{folder}/stubs" for folder in own), *_LINKER, *library_path.split(os.pathsep)]
    places = [machine.at(folder) for folder in folders if folder]
    return tuple(name for name in LIBRARIES if not any(os.path.exists(place / name) for place in places))


def _lacking(
    machine: Machine, home: str, variables: JobVariables, headers: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the headers that no include folder has.

    A wrapper of nvcc alone does not reveal where its toolkit's headers are.
    """
    if variables.has("FLASHINFER_EXTRA_CUDAFLAGS") or not os.path.isfile(
        machine.at(f"{home}/include/cuda_runtime.h")
    ):
        return ()
    named = os.pathsep.join(variables.get(name) for name in ("CPATH", "CPLUS_INCLUDE_PATH"))
    places = [
        machine.at(folder) for folder in (f"{home}/include", *_INCLUDED, *named.split(os.pathsep)) if folder
    ]
    return tuple(header for header in headers if not any(os.path.isfile(place / header) for place in places))


def _candidate(machine: Machine, home: str, on_path: str) -> str:
    others = (folder for folder in _others(machine, home, on_path) if folder != home)
    return next((folder for folder in others if _holds_one(machine, folder)), "")


def _others(machine: Machine, home: str, on_path: str) -> Iterator[str]:
    yield from (entry for entry in home.split(os.pathsep) if entry)
    if on_path:
        yield _two_up(f"/{machine.at(on_path).resolve().relative_to(machine.root.resolve())}")
    yield DEFAULT


def _two_up(nvcc: str) -> str:
    return str(Path(nvcc).parent.parent)


def _holds_one(machine: Machine, folder: str) -> bool:
    return bool(folder) and _runs(machine.at(f"{folder}/bin/nvcc"))


def _found(machine: Machine, name: str, path: str) -> str:
    """Return the file that a command's name refers to.

    A name with a slash is a path; compilers may be followed by options.
    """
    name = name.split(maxsplit=1)[0] if name.split() else ""
    if "/" in name:
        return name if _runs(machine.at(name)) else ""
    candidates = (f"{entry}/{name}" for entry in path.split(os.pathsep) if entry)
    return next((candidate for candidate in candidates if _runs(machine.at(candidate))), "")


def _runs(path: Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _output(machine: Machine, program: str, *arguments: str) -> str:
    if not program:
        return ""
    try:
        return machine.run((str(machine.at(program)), *arguments), timeout=_LIMIT).stdout
    except OSError:
        return ""


def _dotted(number: str) -> str:
    """Convert `120` to `12.0`."""
    return f"{number[:-1]}.{number[-1]}"

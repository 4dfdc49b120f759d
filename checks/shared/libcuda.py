"""Shared by the rules about the driver's library: examples, and versions of drivers."""

from __future__ import annotations

from typing import Any

from verl_doctor.toolkit.collectors.cuda.init import CudaAnswer, CudaInit
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, Library
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Location

DRIVER = "580.159.04"
FOLDER = "/usr/local/nvidia/lib64"
OWN = Library(
    path=f"{FOLDER}/libcuda.so.1",
    real=f"{FOLDER}/libcuda.so.{DRIVER}",
    version=DRIVER,
    how="ld.so.cache",
    entry=FOLDER,
)
COMPAT_FOLDER = "/usr/local/cuda/compat"
COMPAT = Library(
    path=f"{COMPAT_FOLDER}/libcuda.so.1",
    real="/usr/local/cuda-13.0/compat/libcuda.so.580.95.05",
    version="580.95.05",
    compat=True,
    how="LD_LIBRARY_PATH",
    entry=COMPAT_FOLDER,
)
STUBS = "/usr/local/cuda/lib64/stubs"
STUB = Library(
    path=f"{STUBS}/libcuda.so.1", real=f"{STUBS}/libcuda.so", stub=True, how="LD_LIBRARY_PATH", entry=STUBS
)
WORKS = CudaAnswer(file=OWN.real, code=0, cuda=13000, devices=8)


def machine(*candidates: Library, elsewhere: tuple[Library, ...] = (), driver: str = DRIVER) -> LibCuda:
    """The libraries on a machine, in the order of the loader's search."""
    return LibCuda(driver=driver, candidates=candidates, elsewhere=elsewhere)


def answers(code: int, name: str = "", **more: Any) -> CudaInit:
    """A process of the job to which the driver returns this code."""
    return CudaInit(CudaAnswer(file=OWN.real, code=code, name=name), **more)


def build(**fields: Any) -> TritonBuild:
    """A Triton with a working compiler, unless the fields state otherwise."""
    usual = {
        "folder": "/env/lib/python3.12/site-packages/triton",
        "compiler": "/usr/bin/gcc",
        "compiler_version": "gcc (Ubuntu 13.3.0) 13.3.0",
        "folders": (FOLDER,),
        "library": "-lcuda",
        "linked": f"{FOLDER}/libcuda.so",
        "reads_variable": True,
    }
    return TritonBuild(**{**usual, **fields})


def way_out(library: Library) -> str:
    """How to hide a library from the loader."""
    folder = library.entry or library.folder
    if library.how == "ld.so.cache":
        return f"as root, remove {folder} from /etc/ld.so.conf.d and run ldconfig"
    if library.how in {"LD_LIBRARY_PATH", "LD_PRELOAD", "/etc/ld.so.preload"}:
        return f"remove {folder} from {library.how}"
    return f"remove {library.path}: {library.how} leads there"


def set_at(library: Library, job: JobVariables | Unknown) -> Location | None:
    """Where a launch file sets the variable that makes the loader find a library."""
    if isinstance(job, Unknown) or library.how not in job.places:
        return None
    return Location(*job.places[library.how])


def is_older(version: str, than: str) -> bool:
    """Whether one driver version is certainly older than another."""
    try:
        return tuple(map(int, version.split("."))) < tuple(map(int, than.split(".")))
    except ValueError:
        return False


def last_line(text: str) -> str:
    """The last line that a program printed."""
    return text.strip().splitlines()[-1].strip() if text.strip() else "it printed nothing"

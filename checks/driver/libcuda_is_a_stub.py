"""CUDA102: a stub would be loaded instead of the driver's library."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.libcuda import OWN, STUB, STUBS, machine, set_at, way_out
from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_SHELL = JobVariables()
_SCRIPT = JobVariables(values={"LD_LIBRARY_PATH": STUBS}, places={"LD_LIBRARY_PATH": ("/home/me/run.sh", 4)})


def _examples() -> list[Example]:
    return [
        Example("the driver's library", (machine(OWN), _SHELL)),
        Example("a stub comes after the driver's library", (machine(OWN, STUB), _SHELL)),
        Example("a stub comes first", (machine(STUB, OWN), _SHELL), f"{STUBS}/libcuda.so.1 is a stub"),
        Example("a launch script puts a stub first", (machine(STUB, OWN), _SCRIPT), "is a stub"),
    ]


@check("CUDA102", requires={"CUDA101"}, examples=_examples)
def libcuda_is_a_stub(libcuda: LibCuda, job: JobVariables | Unknown) -> Iterator[Finding]:
    """A stub would be loaded instead of the driver's library.

    ## Why it matters

    CUDA's `stubs` folders hold a library with the driver's names but no code, made for linking on
    machines without a GPU. A process that loads it gets error 34, `CUDA driver is a stub library`, from
    every call.

    ## How to fix

    Remove the stubs folder from LD_LIBRARY_PATH (and from `/etc/ld.so.conf.d`). The linker searches
    LIBRARY_PATH, where a stub does no harm.
    """
    loaded = libcuda.loaded
    if loaded is None or not loaded.stub:
        return
    own = libcuda.drivers_own
    yield Finding(
        f"{loaded.path} is a stub, and processes load it as {SONAME} instead of the driver's",
        Evidence(
            f"{loaded.path} by {loaded.how}: it cannot reach any device",
            own.real if own else "the driver's library",
            "the loader's search, and the file's symbols",
        ),
        location=set_at(loaded, job),
        remedy=f"{way_out(loaded)}; for the linker use LIBRARY_PATH",
        stops=(EVERY_JOB,),
        phase="workers",
        fix="driver-before-stub" if own or set_at(loaded, job) else None,
        subject=Subject("library", loaded.path),
    )

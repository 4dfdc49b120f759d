"""CUDA103: a libcuda older than the kernel's driver would be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.libcuda import (
    COMPAT,
    COMPAT_FOLDER,
    DRIVER,
    OWN,
    WORKS,
    is_older,
    machine,
    set_at,
    way_out,
)
from verl_doctor.toolkit.collectors.cuda.init import CudaInit
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, Library
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_NOT_QUERIED = (CudaInit, Unknown(""))
_NEWER = replace(COMPAT, version="590.44.01", real="/usr/local/cuda/compat/libcuda.so.590.44.01")


def _examples() -> list[Example]:
    return [
        Example("of the driver's version", (machine(OWN), _NOT_QUERIED)),
        Example(
            "a compat folder exists, but nothing points to it",
            (machine(OWN, elsewhere=(replace(COMPAT, how=""),)), _NOT_QUERIED),
        ),
        Example("a newer library from compat, as intended", (machine(_NEWER, OWN), _NOT_QUERIED)),
        Example(
            "an older library that works anyway",
            (machine(COMPAT, OWN), CudaInit(replace(WORKS, file=COMPAT.real))),
        ),
        Example("the kernel does not report its version", (machine(COMPAT, driver=""), _NOT_QUERIED)),
        Example(
            "compat first",
            (machine(COMPAT, OWN), _NOT_QUERIED),
            f"libcuda 580.95.05 would be loaded with driver {DRIVER}",
        ),
        Example(
            "an image's ld.so.conf leads to compat",
            (machine(replace(COMPAT, how="ld.so.cache"), OWN), _NOT_QUERIED),
            "580.95.05",
        ),
        Example(
            "compat second does no harm",
            (machine(OWN, COMPAT), CudaInit(WORKS)),
            f"{COMPAT_FOLDER} is searched",
        ),
    ]


@check("CUDA103", requires={"CUDA101"}, examples=_examples)
def libcuda_older_than_driver(
    libcuda: LibCuda, init: CudaInit | Unknown, job: JobVariables | Unknown
) -> Iterator[Finding]:
    """A libcuda older than the kernel's driver would be loaded.

    ## Why it matters

    Both parts of the driver must have the same version. CUDA's `compat` folder contains a newer `libcuda` for
    older drivers; in an image that is older than its host's driver, that `libcuda` is the older one, and
    every process that loads it fails with error 803, `system has unsupported display driver / cuda driver
    combination`.

    ## How to fix

    Remove the compat folder from LD_LIBRARY_PATH and `/etc/ld.so.conf.d`, or put the driver's folder before
    it.

    ## References

    https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    loaded = libcuda.loaded
    works = not isinstance(init, Unknown) and init.as_job.works
    if loaded is None:
        return
    if _is_older(loaded, libcuda):
        if not works:
            yield Finding(
                (
                    f"libcuda {loaded.version} would be loaded with driver {libcuda.driver} in the kernel: "
                    "error 803"
                ),
                Evidence(
                    f"{loaded.real} by {loaded.how}",
                    f"libcuda {libcuda.driver}",
                    "the loader's search and /proc/driver/nvidia/version",
                ),
                location=set_at(loaded, job),
                remedy=way_out(loaded),
                stops=(EVERY_JOB,),
                phase="workers",
                fix="driver-before-compat" if libcuda.drivers_own else None,
                subject=Subject("library", loaded.path),
            )
        return
    for later in libcuda.candidates:
        if later.compat and later.how == "LD_LIBRARY_PATH" and _is_older(later, libcuda):
            yield Finding(
                f"{later.entry} is searched for libraries: its libcuda {later.version} is older than driver "
                f"{libcuda.driver}, and only the order keeps it from being loaded",
                Evidence(later.real, f"libcuda {libcuda.driver}", later.how),
                location=set_at(later, job),
                remedy=way_out(later),
                severity="info",
                subject=Subject("library", later.path),
            )


def _is_older(library: Library, libcuda: LibCuda) -> bool:
    return not library.trouble and is_older(library.version, libcuda.driver)

"""CUDA101: the job would find no libcuda."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.libcuda import FOLDER, OWN, STUB, machine
from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_UNREACHED = replace(OWN, how="", entry="")
_CUT_OFF = replace(OWN, how="LD_LIBRARY_PATH", trouble="damaged")


def _examples() -> list[Example]:
    return [
        Example("the loader's cache has it", (machine(OWN),)),
        Example(
            "a file for another processor is skipped",
            (machine(replace(OWN, trouble="for another processor"), OWN),),
        ),
        Example(
            "its folder is not searched",
            (machine(elsewhere=(_UNREACHED,)),),
            f"{FOLDER}, where the driver's is",
        ),
        Example(
            "a container with devices but without the library",
            (machine(),),
            "this machine has NVIDIA devices but no libcuda.so.1",
        ),
        Example("only a stub exists", (machine(elsewhere=(STUB,)),), "no libcuda.so.1 of the driver"),
        Example(
            "the link leads nowhere",
            (machine(replace(OWN, trouble="dangling link")),),
            "no libcuda.so.1 of the driver",
        ),
        Example("a truncated file", (machine(_CUT_OFF, OWN),), "is damaged"),
    ]


@check("CUDA101", examples=_examples)
def libcuda_not_found(libcuda: LibCuda) -> Iterator[Finding]:
    """The job would find no libcuda.

    ## Why it matters

    Everything that uses a GPU loads the driver's library by the name `libcuda.so.1`. Without it torch
    reports "no NVIDIA driver on your system" although the devices exist.

    ## How to fix

    Put the folder of the driver's library at the front of LD_LIBRARY_PATH before Ray is started, or have root
    add it to `/etc/ld.so.conf.d` and run `ldconfig`. If the library is nowhere on the machine, the container
    was started without it: with NVIDIA's container toolkit, NVIDIA_DRIVER_CAPABILITIES must include
    `compute`.
    """
    if libcuda.loaded is not None:
        return
    stopper = next((candidate for candidate in libcuda.candidates if candidate.ends_search), None)
    own = libcuda.drivers_own
    if stopper is not None:
        what = "is damaged" if stopper.trouble == "damaged" else f"is {stopper.trouble}"
        yield Finding(
            f"{stopper.path} {what}, and the loader treats it as {SONAME}",
            Evidence(f"{stopper.real}: {stopper.trouble}", "the driver's library", stopper.how),
            Location(stopper.path),
            "remove it, or put the driver's folder before it",
            stops=(EVERY_JOB,),
            phase="workers",
            fix="driver-on-path",
            subject=Subject("library", stopper.path),
        )
    elif own is not None:
        yield Finding(
            f"no {SONAME} is found: the loader does not search {own.folder}, where the driver's is",
            Evidence(
                own.real, f"{own.folder} in LD_LIBRARY_PATH or in the loader's cache", "the loader's search"
            ),
            remedy=f"export LD_LIBRARY_PATH={own.folder}:$LD_LIBRARY_PATH before Ray is started",
            stops=(EVERY_JOB,),
            phase="workers",
            fix="driver-on-path",
            subject=Subject("library", own.path),
        )
    else:
        present = ", ".join(
            f"{candidate.path} ({candidate.trouble or ('a stub' if candidate.stub else 'of compat')})"
            for candidate in (*libcuda.candidates, *libcuda.elsewhere)
        )
        yield Finding(
            f"this machine has NVIDIA devices but no {SONAME}" + (" of the driver" if present else ""),
            Evidence(present or "no such file", "the driver's library"),
            remedy=(
                "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility; outside a container, "
                "install the driver's libraries"
            ),
            stops=(EVERY_JOB,),
            phase="workers",
            subject=Subject("library", SONAME),
        )

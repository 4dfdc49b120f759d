"""CUDA102: a stub would be loaded in place of the driver's library."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._libcuda import OWN, STUB, STUBS, machine
from verl_doctor.toolkit.fact_libcuda import SONAME, LibCuda
from verl_doctor.toolkit.fact_library_path import LibraryPath, StubFolder
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, check

_SCRIPT = LibraryPath((StubFolder(STUBS, "/home/me/run.sh", 4, loadable=True),))


@check(
    "CUDA102",
    requires={"CUDA101"},
    examples=[
        Example("the driver's library", (machine(OWN), LibraryPath())),
        Example("a stub comes after it", (machine(OWN, STUB), LibraryPath())),
        Example("a stub comes first", (machine(STUB, OWN), LibraryPath()), f"{STUBS}/libcuda.so.1 is a stub"),
        Example("a launch script puts it there", (machine(STUB, OWN), _SCRIPT), "is a stub"),
    ],
)
def libcuda_is_a_stub(libcuda: LibCuda, library_path: LibraryPath | Unknown) -> Iterator[Finding]:
    """A stub would be loaded in place of the driver's library.

    ## Why it matters

    CUDA's `stubs` folders hold a library with the driver's names and nothing behind them, made for linking on machines
    without a GPU. A process that loads it gets error 34, `CUDA driver is a stub library`, from every call.

    ## How to fix

    Take the stubs folder out of LD_LIBRARY_PATH (and out of `/etc/ld.so.conf.d`). The linker looks in LIBRARY_PATH; there a
    stub does no harm.
    """
    loaded = libcuda.loaded
    if loaded is None or not loaded.stub:
        return
    own = libcuda.drivers_own
    set_by = [
        Location(stub.path, stub.line)
        for stub in (() if isinstance(library_path, Unknown) else library_path.stubs)
        if stub.path and stub.folder.rstrip("/") == loaded.folder
    ]
    yield Finding(
        f"{loaded.path} is a stub, and processes load it as {SONAME} in place of the driver's",
        Evidence(
            f"{loaded.path} by {loaded.how}: it cannot reach any device",
            own.real if own else "the driver's library",
            "the loader's search, and the file's symbols",
        ),
        location=next(iter(set_by), None),
        remedy=f"take {loaded.entry or loaded.folder} out of {loaded.how}; for the linker use LIBRARY_PATH",
        stops=(EVERY_JOB,),
        phase="start",
        fix="driver-before-stub" if own else None,
    )

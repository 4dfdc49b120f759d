"""CUDA105: Triton cannot link its launchers against libcuda."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.libcuda import OWN, build, last_line, machine
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda
from verl_doctor.toolkit.collectors.kernels.triton_build import LIBCUDA_PATH, TritonBuild
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_LD = "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status"

_HERE = machine(OWN)


def _examples() -> list[Example]:
    return [
        Example("Triton can link", (build(), _HERE)),
        Example(
            "a stub will do for the linker", (build(linked="/usr/local/cuda/lib64/stubs/libcuda.so"), _HERE)
        ),
        Example(
            "there is no compiler",
            (build(compiler="", compiler_error="Failed to find C compiler.", lookup_error="x"), _HERE),
        ),
        Example("there is no libcuda on this machine", (build(linked="", link_error=_LD), machine())),
        Example("only libcuda.so.1 exists", (build(linked="", link_error=_LD), _HERE), "cannot find -lcuda"),
        Example(
            "a libcuda without the driver's functions",
            (build(link_error="main.c:(.text+0xb): undefined reference to `cuInit'"), _HERE),
            "undefined reference to `cuInit'",
        ),
        Example(
            "its own search finds nothing",
            (build(folders=(), lookup_error="AssertionError: libcuda.so cannot found!"), _HERE),
            "libcuda.so cannot found!",
        ),
    ]


@check("CUDA105", requires={"CUDA106"}, examples=_examples)
def triton_cannot_link(
    build: TritonBuild, libcuda: LibCuda | Unknown, rollout: RolloutModule | Unknown
) -> Iterator[Finding]:
    """Triton cannot link its launchers against libcuda.

    ## Why it matters

    For each kernel Triton builds a small C library that is linked with `-lcuda`, or with `-l:libcuda.so.1` in
    3.6 and later. If only `libcuda.so.1` exists, or is in a folder that the linker does not search (rented
    containers, conda's linker), the first kernel fails with `cannot find -lcuda`. This was tested with the
    installed Triton's own functions.

    ## How to fix

    Create a folder with a link `libcuda.so` to the driver's `libcuda.so.1`, and set TRITON_LIBCUDA_PATH and
    LIBRARY_PATH to it before Ray starts. CUDA's `stubs` folder may be in LIBRARY_PATH, never in
    LD_LIBRARY_PATH: that is the loader's path and does not help the linker.

    ## References

    vllm-project/vllm#16984, triton-lang/triton#1981, triton-lang/triton#2582, triton-lang/triton#3053
    """
    if build.compiler_error or not (build.lookup_error or build.link_error):
        return
    searched = ", ".join(build.folders) or "no folder"
    error = build.lookup_error.splitlines()[0] if build.lookup_error else _complaint(build.link_error)
    own = None
    if not isinstance(libcuda, Unknown):
        own = libcuda.drivers_own
        if own is None and libcuda.loaded is None:
            return  # there is nothing to link with, which CUDA101 reports
    yield Finding(
        f"Triton cannot link {build.library or 'libcuda'}: {error}",
        Evidence(
            f"{error}; it makes the linker search {searched}",
            f"libcuda where {build.compiler or 'the compiler'} searches",
            build.folder,
        ),
        remedy=(
            f"set {LIBCUDA_PATH} and LIBRARY_PATH to a folder with libcuda.so -> "
            f"{own.path if own else 'libcuda.so.1'}"
        ),
        stops=(EVERY_JOB,),
        phase="engine",
        fix="libcuda-link" if own else None,
        subject=Subject("library", SONAME),
    )
    if (
        own
        and build.reads_variable
        and not isinstance(rollout, Unknown)
        and LIBCUDA_PATH not in rollout.defaults
    ):
        yield Finding(
            (
                f"where the job's environment cannot be changed, verl can set {LIBCUDA_PATH} itself before "
                "it starts vLLM"
            ),
            Evidence(f"{rollout.path} does not set it", read_from=rollout.path),
            Location(rollout.path),
            f"apply this only if you cannot set {LIBCUDA_PATH} before Ray starts",
            severity="info",
            fix="libcuda-in-source",
            subject=Subject("variable", LIBCUDA_PATH, rollout.path),
        )


def _complaint(text: str) -> str:
    """The line about libcuda in the output of the compiler and linker."""
    lines = [
        line.strip()
        for line in text.splitlines()
        if "libcuda" in line or "-lcuda" in line or "cuInit" in line
    ]
    return lines[0] if lines else last_line(text)

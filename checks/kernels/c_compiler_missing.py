"""CUDA106: Triton finds no C compiler, or one that compiles nothing or hangs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.libcuda import build, last_line
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_NONE = "Failed to find C compiler. Please specify via CC environment variable."
_HANGS = "ccache-gcc main.c -shared -fPIC -o verl_doctor.so -lcuda"
_CC1 = "gcc: fatal error: cannot execute 'cc1': execvp: No such file or directory\ncompilation terminated."


def _examples() -> list[Example]:
    return [
        Example("the compiler works", (build(),)),
        Example(
            "the linker finds no libcuda, which another rule reports",
            (build(link_error="cannot find -lcuda"),),
        ),
        Example("none is installed", (build(compiler="", compiler_error=_NONE),), "finds no C compiler"),
        Example(
            "CC names a compiler that does not exist",
            (build(compiler="gcc-99", compiler_error="[Errno 2] No such file or directory: 'gcc-99'"),),
            "gcc-99",
        ),
        Example(
            "CC with arguments",
            (
                build(
                    compiler="ccache gcc", compiler_error="[Errno 2] No such file or directory: 'ccache gcc'"
                ),
            ),
            "ccache gcc",
        ),
        Example("a part of the compiler is missing", (build(compiler_error=_CC1),), "cannot execute 'cc1'"),
        Example(
            "the compiler hangs",
            (build(compiler="ccache-gcc", hangs=_HANGS, patience=15.0),),
            "hangs: ccache-gcc did not end within 15 s",
        ),
    ]


@check("CUDA106", examples=_examples)
def c_compiler_missing(build: TritonBuild) -> Iterator[Finding]:
    """Triton finds no C compiler that works.

    ## Why it matters

    Triton compiles a small C library for each kernel when it is first used, minutes into the start: kernels
    of vLLM, verl and torch.compile all need a compiler.

    ## How to fix

    Install one: `apt install gcc libc6-dev`, or without root `conda install -c conda-forge gcc_linux-64` and
    `CC` set to it. If the compiler hangs, it is waiting for a file system that does not respond, ccache's
    lock or a licence server: run the finding's command by hand to see which.

    ## References

    verl-project/verl#466, vllm-project/vllm#14075
    """
    if build.hangs:
        yield Finding(
            (
                f"the compiler that Triton uses hangs: {build.compiler} did not end within "
                f"{build.patience:.0f} s"
            ),
            Evidence(build.hangs, "it ends within a second", "a few lines of C, compiled as Triton would"),
            remedy=(
                f"run {build.compiler} by hand on a one-line file and see what it waits for, or set CC to "
                "another compiler"
            ),
            stops=(EVERY_JOB,),
            phase="engine",
            subject=Subject("file", build.compiler),
        )
    if not build.compiler_error:
        return
    complaint = _complaint(build.compiler_error)
    yield Finding(
        f"the compiler that Triton uses does not work: {build.compiler}: {complaint}"
        if build.compiler
        else "Triton finds no C compiler: CC is not set, and neither gcc nor clang is on PATH",
        Evidence(complaint, "a C compiler", "Triton's own search"),
        remedy=_remedy(build.compiler),
        stops=(EVERY_JOB,),
        phase="engine",
        subject=Subject("file", build.compiler) if build.compiler else Subject("variable", "CC"),
    )


def _remedy(compiler: str) -> str:
    if " " in compiler:
        return "set CC to a compiler without arguments: Triton takes it as the name of one program"
    return (
        "set CC to a compiler that works, or unset it" if compiler else "apt install gcc libc6-dev, or set CC"
    )


def _complaint(text: str) -> str:
    """The first line with an error, which causes the others."""
    lines = [line.strip() for line in text.splitlines() if "rror" in line]
    return lines[0] if lines else last_line(text)

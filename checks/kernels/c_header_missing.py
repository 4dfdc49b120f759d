"""CUDA108: a C header that Triton includes is missing."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.kernels.python_headers_missing import HEADER as PYTHON
from verl_doctor.checks.shared.libcuda import build
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_ATOMIC = "stdatomic.h"


def _examples() -> list[Example]:
    return [
        Example("all headers exist", (build(),)),
        Example("Python.h, which another rule reports", (build(missing_headers=(PYTHON,)),)),
        Example(
            "an old compiler",
            (build(missing_headers=(_ATOMIC,), compiler_version="gcc (GCC) 4.8.5"),),
            "no stdatomic.h",
        ),
        Example(
            "no C library to compile with",
            (build(missing_headers=(PYTHON, "stdio.h", "stdlib.h")),),
            "no stdio.h, stdlib.h",
        ),
    ]


@check("CUDA108", requires={"CUDA106"}, examples=_examples)
def c_header_missing(build: TritonBuild) -> Iterator[Finding]:
    """A C header that Triton includes is missing.

    ## Why it matters

    Triton compiles a C library for each kernel. `stdatomic.h` is missing if the compiler is older than gcc
    4.9 (CentOS 7), all headers of the C library if only the compiler was installed; `cuda.h` comes with
    Triton.

    ## How to fix

    For `stdatomic.h`, install a newer compiler (`conda install -c conda-forge gcc_linux-64`, a devtoolset)
    and set `CC` to it. For headers of the C library, run `apt install libc6-dev`. For `cuda.h`, reinstall
    Triton.

    ## References

    vllm-project/vllm#2997
    """
    lacking = [header for header in build.missing_headers if header != PYTHON]
    if not lacking:
        return
    remedy = "apt install libc6-dev"
    if _ATOMIC in lacking:
        remedy = "install gcc 4.9 or newer, and name it in CC"
    elif "cuda.h" in lacking:
        remedy = "reinstall Triton, which brings cuda.h"
    yield Finding(
        f"{build.compiler} finds no {', '.join(lacking)}, which Triton's launchers include",
        Evidence(
            f"{build.compiler_version or build.compiler}: no {', '.join(lacking)}", "the header", build.folder
        ),
        remedy=remedy,
        stops=(EVERY_JOB,),
        phase="engine",
        subject=Subject("file", ",".join(lacking)),
    )

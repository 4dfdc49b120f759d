"""CUDA107: Python.h, which Triton's launchers need, is missing."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.checks.shared.libcuda import build
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

HEADER = "Python.h"


def _examples() -> list[Example]:
    return [
        Example("Python.h exists", (build(), PYTHON)),
        Example("another header is missing", (build(missing_headers=("stdatomic.h",)), PYTHON)),
        Example("Python.h does not exist", (build(missing_headers=(HEADER, "cuda.h")), PYTHON), "Python.h"),
    ]


@check("CUDA107", requires={"CUDA106"}, examples=_examples)
def python_headers_missing(build: TritonBuild, interpreter: Interpreter) -> Iterator[Finding]:
    """Python.h, which Triton's launchers need, is missing.

    ## Why it matters

    The C library that Triton compiles for each kernel includes it. Distributions ship it in a separate
    package, so everything imports, and only the first kernel fails.

    ## How to fix

    `apt install python3.12-dev` (or of your version; `python3.12-devel` for dnf). Without root, use a Python
    from conda or uv, which include it, or add a folder that contains it to `CPATH`.

    ## References

    vllm-project/vllm#15329
    """
    if HEADER in build.missing_headers:
        version = ".".join(interpreter.version.split(".")[:2])
        yield Finding(
            f"{build.compiler} finds no Python.h for Python {version}, which Triton's launchers include",
            Evidence(
                f"no Python.h in the include folder of {interpreter.executable}",
                f"the headers of Python {version}",
                build.compiler,
            ),
            remedy=f"apt install python{version}-dev, or put the folder that holds it into CPATH",
            stops=(EVERY_JOB,),
            phase="engine",
            subject=Subject("file", HEADER, f"Python {version}"),
        )

"""CUDA113: libraries of several major versions of CUDA are installed side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.extensions import FLASH, TORCH, file_name, major, severity, what_fits
from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.compiled.extensions import Extensions
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages.cuda_wheels import CudaWheel, CudaWheels, SharedFiles
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 5
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_CUDA_12 = CudaWheel(name="nvidia-nccl-cu12", version="2.27.5", cuda=12)
_CUDA_13 = CudaWheel(name="nvidia-nccl-cu13", version="2.28.9", cuda=13)
_NCCL = SharedFiles(
    wheels=("nvidia-nccl-cu12", "nvidia-nccl-cu13"), files=("/env/nvidia/nccl/lib/libnccl.so.2",)
)
_NONE = Extensions(extensions=(), looked_at=0)
_NO_PACKAGES = Packages(())


def _installed(name: str, version: str) -> Packages:
    return Packages((Distribution(name=name, version=version, location=f"/env/{name}.dist-info"),))


def _examples() -> list[Example]:
    return [
        Example(
            "a single CUDA version",
            (
                PYTHON,
                TORCH,
                CudaWheels((_CUDA_12,)),
                Extensions(extensions=(FLASH,), looked_at=1),
                _NO_PACKAGES,
            ),
        ),
        Example(
            "no CUDA at all",
            (
                PYTHON,
                TorchBuild(folder="/env/torch", version="2.8.0+cpu"),
                CudaWheels(()),
                _NONE,
                _NO_PACKAGES,
            ),
        ),
        Example(
            "wheels for two versions of CUDA",
            (
                PYTHON,
                TORCH,
                CudaWheels((_CUDA_12, CudaWheel(name="nvidia-cublas", version="13.1.0.3", cuda=13))),
                _NONE,
                _NO_PACKAGES,
            ),
            "nvidia-cublas for CUDA 13",
        ),
        Example(
            "and they write the same file",
            (PYTHON, TORCH, CudaWheels(wheels=(_CUDA_12, _CUDA_13), shared=(_NCCL,)), _NONE, _NO_PACKAGES),
            "write the same libnccl.so.2",
        ),
        Example(
            "a package for another CUDA than torch's",
            (
                PYTHON,
                TORCH,
                CudaWheels(()),
                Extensions(extensions=(replace(FLASH, cuda_runtimes=("libcudart.so.13",)),), looked_at=1),
                _installed("flash-attn", "2.7.4"),
            ),
            "flash-attn 2.7.4 is built for CUDA 13",
        ),
    ]


@check("CUDA113", phase="import", severity="warning", requires={"PY100"}, examples=_examples)
def cuda_majors_mixed(
    interpreter: Interpreter,
    torch: TorchBuild,
    cuda_wheels: CudaWheels,
    extensions: Extensions | Unknown,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """Libraries of several major versions of CUDA are installed side by side.

    ## Why it matters

    The `nvidia-*-cu12` and `nvidia-*-cu13` wheels of NCCL, cuDNN and NVSHMEM write the same files: the one
    installed last wins, and removing one also removes the other's files. A package built for a CUDA version
    other than torch's loads a second runtime into the process, which shares neither streams nor allocations
    with torch's.

    ## How to fix

    Remove the wheels that torch does not require, then reinstall torch's own, until `pip check` reports
    nothing. Install builds of the other packages that are made for torch's CUDA.
    """
    own = major(torch.cuda) if torch.cuda else None
    for shared in cuda_wheels.shared:
        others = [name for name in shared.wheels if own is None or not name.endswith(f"-cu{own}")]
        keep = [name for name in shared.wheels if name not in others]
        yield Finding(
            (
                f"{' and '.join(shared.wheels)} write the same {file_name(shared.files[0])}: the one "
                "installed last wins"
            ),
            Evidence(
                found=listed(shared.files, _SHOWN),
                wanted=f"the libraries for CUDA {torch.cuda or 'of torch'}, and no others",
                read_from="RECORD of both",
            ),
            location=Location(shared.files[0]),
            remedy=(
                f"pip uninstall -y {' '.join(others)} && pip install --force-reinstall --no-deps "
                f"{' '.join(keep or shared.wheels[:1])}"
            ),
            subject=Subject("package", shared.wheels[0], ",".join(shared.wheels[1:])),
        )
    reported = {name for shared in cuda_wheels.shared for name in shared.wheels}
    strange = [
        wheel for wheel in cuda_wheels.wheels if own and wheel.cuda != own and wheel.name not in reported
    ]
    fitting = any(wheel.cuda == own for wheel in cuda_wheels.wheels)
    if strange and fitting:
        yield Finding(
            (
                f"torch {torch.version} is for CUDA {torch.cuda}, "
                f"{listed((f'{wheel.name}' for wheel in strange), _SHOWN)} for CUDA "
                f"{listed(map(str, sorted({wheel.cuda for wheel in strange})), _SHOWN)}"
            ),
            Evidence(
                found=listed((f"{wheel.name} {wheel.version}" for wheel in strange), _SHOWN),
                wanted=f"wheels for CUDA {own}",
                read_from="the names of the installed distributions",
            ),
            remedy=(
                "if nothing requires them (`pip check`): pip uninstall -y "
                f"{' '.join(wheel.name for wheel in strange)}"
            ),
            severity="info",
            subject=Subject("package", ",".join(wheel.name for wheel in strange)),
        )
    for extension in () if isinstance(extensions, Unknown) else extensions.extensions:
        numbers = {int(found[1]) for name in extension.cuda_runtimes if (found := _RUNTIME.match(name))}
        if own and extension.loads and extension.uses_torch and numbers and own not in numbers:
            number = min(numbers)
            yield Finding(
                (
                    f"{extension.package} {extension.version} is built for CUDA {number}, torch "
                    f"{torch.version} for CUDA {torch.cuda}"
                ),
                Evidence(
                    found=(
                        f"{file_name(extension.path)} needs {listed(extension.cuda_runtimes, _SHOWN)}, and "
                        "it is found"
                    ),
                    wanted=f"libcudart.so.{own}, which torch has loaded",
                    read_from=extension.path,
                ),
                location=Location(extension.path),
                remedy=what_fits(extension.package, extension.version, extension, torch, interpreter),
                severity=severity(extension.package, packages),
                subject=Subject("package", extension.package, extension.version),
            )

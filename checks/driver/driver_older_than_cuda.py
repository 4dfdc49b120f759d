"""CUDA114: the driver is too old for the CUDA that a package is built for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from verl_doctor.checks.shared.cuda_drivers import MINIMUM_DRIVER
from verl_doctor.checks.shared.extensions import FLASH, TORCH, major
from verl_doctor.toolkit.collectors.compiled.extensions import Extensions
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.packages.cuda_wheels import CudaWheel, CudaWheels
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 6
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_OLD = Gpus(driver="550.54.15", cuda="12.4")
_NEW = Gpus(driver="580.159.04", cuda="13.0")
_NONE = Extensions(extensions=(), looked_at=0)
_THIRTEEN = TorchBuild(folder="/env/torch", version="2.11.0+cu130", cuda="13.0", cxx11_abi=True)


def _examples() -> list[Example]:
    return [
        Example(
            "the driver is newer",
            (_NEW, _THIRTEEN, CudaWheels(()), Extensions(extensions=(FLASH,), looked_at=1)),
        ),
        Example("an older minor version of the same CUDA", (_OLD, TORCH, CudaWheels(()), _NONE)),
        Example(
            "torch for a newer CUDA",
            (_OLD, _THIRTEEN, CudaWheels(()), _NONE),
            "torch 2.11.0+cu130 needs CUDA 13",
        ),
        Example(
            "wheels for a newer CUDA",
            (
                _OLD,
                TORCH,
                CudaWheels((CudaWheel(name="nvidia-cuda-runtime", version="13.0.96", cuda=13),)),
                _NONE,
            ),
            "nvidia-cuda-runtime 13.0.96 needs CUDA 13",
        ),
    ]


@check("CUDA114", phase="workers", examples=_examples)
def driver_older_than_cuda(
    gpus: Gpus,
    torch: TorchBuild | Unknown,
    cuda_wheels: CudaWheels | Unknown,
    extensions: Extensions | Unknown,
) -> Iterator[Finding]:
    """The driver is too old for the CUDA that a package is built for.

    ## Why it matters

    `CUDA driver version is insufficient for CUDA runtime version`: a driver supports its own major version of
    CUDA and older ones. Within a major version an older driver supports newer runtimes, except for PTX
    (CUDA115). Not only torch's CUDA counts: vLLM, flash-attn and FlashInfer each require their own runtime.

    ## How to fix

    Install builds for the CUDA that the driver supports (torch: `--index-url
    https://download.pytorch.org/whl/cu128`), or have the driver updated. On GPUs for data centres the package
    `cuda-compat` brings a newer libcuda for an older driver.
    """
    serves = major(gpus.cuda)
    if serves is None:
        return
    users = _users(torch, cuda_wheels, extensions)
    for wanted in sorted(number for number in users if number > serves):
        names = users[wanted]
        yield Finding(
            (
                f"{listed(names, _SHOWN)} {'needs' if len(names) == 1 else 'need'} CUDA {wanted}, but the "
                f"driver supports only CUDA up to {gpus.cuda}"
            ),
            Evidence(
                found=f"driver {gpus.driver}, CUDA {gpus.cuda}",
                wanted=(
                    f"driver {MINIMUM_DRIVER.get(wanted, 'for')} or newer for CUDA {wanted} (NVIDIA's "
                    "table, as of 2026-11)"
                )
                if wanted in MINIMUM_DRIVER
                else f"a driver for CUDA {wanted}",
                read_from="NVML",
            ),
            remedy=f"install builds for CUDA {serves}, or upgrade the driver"
            + (f" to {MINIMUM_DRIVER[wanted]} or later" if wanted in MINIMUM_DRIVER else ""),
            subject=Subject("driver", gpus.driver, f"CUDA {wanted}"),
        )


def _users(
    torch: TorchBuild | Unknown, cuda_wheels: CudaWheels | Unknown, extensions: Extensions | Unknown
) -> dict[int, list[str]]:
    """What needs each CUDA: torch, then packages by the runtime they name, then the runtime's wheels."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    if not isinstance(torch, Unknown) and torch.cuda and (number := major(torch.cuda)):
        found[number][f"torch {torch.version}"] = None
    for extension in () if isinstance(extensions, Unknown) else extensions.extensions:
        numbers = [int(match[1]) for name in extension.cuda_runtimes if (match := _RUNTIME.match(name))]
        # Of several builds, the one that matches torch is loaded.
        if numbers and extension.package != "torch" and not extension.instead and extension.uses_torch:
            found[min(numbers)][f"{extension.package} {extension.version}"] = None
    for wheel in () if isinstance(cuda_wheels, Unknown) else cuda_wheels.wheels:
        if wheel.name.startswith("nvidia-cuda-runtime"):
            found[wheel.cuda][f"{wheel.name} {wheel.version}"] = None
    return {number: list(names) for number, names in found.items()}

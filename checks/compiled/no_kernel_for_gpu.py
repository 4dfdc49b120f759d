"""CUDA115: a package has no code that this machine's GPU runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from verl_doctor.checks.shared.cuda_drivers import cuda_of_ptx
from verl_doctor.checks.shared.extensions import severity
from verl_doctor.checks.shared.gpus import healthy, named, node
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.kernels.gpu_code import GpuCode, PackageCode, PackagesCode, capability
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 8


def _code(*code: GpuCode) -> PackagesCode:
    return PackagesCode(
        (PackageCode(package="flash-attn", version="2.7.4", path="/env/flash_attn_2_cuda.so", code=code),)
    )


_H200 = GpuCode(kind="cubin", architecture=90, exact=True)
_AMPERE = GpuCode(kind="cubin", architecture=80)
_B200 = node(healthy(capability="10.0", name="NVIDIA B200"))


def _examples() -> list[Example]:
    return [
        Example("machine code for this GPU", (node(), _code(_AMPERE, _H200))),
        Example(
            "machine code for a smaller GPU of the same generation",
            (node(healthy(capability="8.6")), _code(_AMPERE)),
        ),
        Example(
            "PTX that the driver compiles",
            (_B200, _code(_AMPERE, GpuCode(kind="ptx", architecture=80, isa=(8, 7)))),
        ),
        Example(
            "nothing for this GPU", (_B200, _code(_AMPERE, _H200)), "has no code for compute capability 10.0"
        ),
        Example(
            "PTX that is newer than the driver",
            (_B200, _code(GpuCode(kind="ptx", architecture=80, isa=(9, 1)))),
            "PTX of CUDA 13.1",
        ),
    ]


@check("CUDA115", phase="workers", examples=_examples)
def no_kernel_for_gpu(
    gpus: Gpus, packages_code: PackagesCode, packages: Packages | Unknown
) -> Iterator[Finding]:
    """A package contains no code for this machine's GPU.

    ## Why it matters

    `no kernel image is available for execution on the device`, minutes into the start: the package was
    compiled for other architectures. If it contains PTX, the driver compiles that at the first use, unless
    the PTX is newer than the driver: `the provided PTX was compiled with an unsupported toolchain`.

    ## How to fix

    Install a release or build of the package for this architecture: newer GPUs need builds for CUDA 12.8 or
    later (compute capability 10.0 and 12.0). Or compile it here, with TORCH_CUDA_ARCH_LIST set to the GPU's
    capability.
    """
    files = sorted(packages_code.files, key=lambda file: (file.package, file.version))
    for number in sorted({capability(device.capability) for device in gpus.sound if device.capability}):
        devices = [device for device in gpus.sound if capability(device.capability) == number]
        for (package, version), group in groupby(files, key=lambda file: (file.package, file.version)):
            every = list(group)
            # A package has files for several generations, of which it uses one.
            code = {code: None for file in every for code in file.code}
            fitting = [gpu_code for gpu_code in code if gpu_code.runs_on(number)]
            if any(gpu_code.kind == "cubin" for gpu_code in fitting):
                continue
            text = f"{number // 10}.{number % 10}"
            has = listed((_architecture(gpu_code) for gpu_code in sorted(code)), _SHOWN)
            if not fitting:
                message = (
                    f"{package} {version} has no code for compute capability {text} ({named(devices)}, "
                    f"{devices[0].name})"
                )
            elif (newest := _too_new(fitting, gpus.cuda)) is not None:
                message = (
                    f"{package} {version} has only PTX of CUDA {newest} for {text}, which the driver (CUDA "
                    f"{gpus.cuda}) cannot compile"
                )
            else:
                continue
            yield Finding(
                message,
                Evidence(
                    found=has, wanted=f"sm_{number}, or PTX for it or an older one", read_from=every[0].path
                ),
                location=Location(every[0].path),
                remedy=(
                    f"install a build of {package} for this GPU, or compile it here with "
                    f"TORCH_CUDA_ARCH_LIST={text}"
                ),
                severity=severity(package, packages),
                subject=Subject("package", package, text),
            )


def _too_new(code: list[GpuCode], driver: str) -> str | None:
    """The CUDA of the oldest PTX, if the driver's is older than that; otherwise None."""
    major, _, minor = driver.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return None
    needed = min((cuda for gpu_code in code if (cuda := cuda_of_ptx(gpu_code.isa))), default=None)
    return f"{needed[0]}.{needed[1]}" if needed and needed > (int(major), int(minor)) else None


def _architecture(code: GpuCode) -> str:
    letter = "a" if code.exact else ""
    if code.kind == "cubin":
        return f"sm_{code.architecture}{letter}"
    return f"compute_{code.architecture}{letter} (PTX {code.isa[0]}.{code.isa[1]})"

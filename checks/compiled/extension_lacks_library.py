"""CUDA111: a compiled package needs a library that is found nowhere, or is damaged itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_doctor.checks.shared.extensions import (
    TORCH,
    broken_packages,
    file_name,
    major,
    severity,
    what_fits,
    without,
)
from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions, MissingLibrary
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 4
_OF_TORCH = ("libtorch", "libc10")
# Libraries with CUDA's own version number.
_OF_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti|nvrtc-builtins)\.so\.(\d+)")
_ANY_CUDA = re.compile(r"lib(?:cu[a-z]|nvrtc|nvJitLink|nvshmem|nccl|nvToolsExt|nvjpeg|cudnn)")
# The packages that provide each library on Debian and Ubuntu (packages.debian.org).
_DEBIAN = {
    "libGL.so.1": "libgl1",
    "libEGL.so.1": "libegl1",
    "libSM.so.6": "libsm6",
    "libICE.so.6": "libice6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgomp.so.1": "libgomp1",
    "libnuma.so.1": "libnuma1",
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libmlx5.so.1": "ibverbs-providers",
    **dict.fromkeys((f"libavutil.so.{number}" for number in range(56, 61)), "ffmpeg"),
}
# Of video and sound: torchaudio and others load it when something is decoded.
_FFMPEG = re.compile(r"lib(?:av|sw|postproc)\w*\.so")
_OPENCV = re.compile(r"opencv-(?:contrib-)?python$")


def _examples() -> list[Example]:
    return [
        Example("every library is found", (PYTHON, TORCH, without())),
        Example(
            "another file of the package is loaded instead",
            (PYTHON, TORCH, without("libcudart.so.13", instead="/env/b.so")),
        ),
        Example(
            "the runtime of another CUDA",
            (PYTHON, TORCH, without("libcudart.so.13")),
            "built for CUDA 13, torch 2.8.0+cu128 for CUDA 12.8",
        ),
        Example(
            "torch without CUDA",
            (
                PYTHON,
                TorchBuild(folder="/env/torch", version="2.8.0+cpu"),
                without("libtorch_cuda.so", "libcudart.so.12"),
            ),
            "torch 2.8.0+cpu is built without CUDA",
        ),
        Example(
            "torch is not installed",
            (PYTHON, (TorchBuild, Absent("torch is not installed")), without("libc10.so", "libtorch.so")),
        ),
        Example(
            "a file of torch is missing",
            (PYTHON, TORCH, without("libc10.so")),
            "needs libc10.so, which this torch does not have",
        ),
        Example(
            "a truncated file",
            (PYTHON, TORCH, without(problem="/env/flash_attn_2_cuda.so: it ends too early")),
            "it ends too early",
        ),
        Example(
            "no FFmpeg",
            (
                PYTHON,
                TORCH,
                without("libavutil.so.58", "libswscale.so.7", package="torchaudio", version="2.6.0"),
            ),
            "needs libavutil.so.58",
        ),
        Example(
            "OpenCV on a server",
            (PYTHON, TORCH, without("libGL.so.1", package="opencv-python", version="4.12.0.88")),
            "needs libGL.so.1",
        ),
    ]


@check("CUDA111", phase="import", requires={"PY100"}, examples=_examples)
def extension_lacks_library(
    interpreter: Interpreter,
    torch: TorchBuild | Unknown,
    extensions: Extensions,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """A compiled package needs a library that is missing, or is itself damaged.

    ## Why it matters

    `ImportError: libcudart.so.13: cannot open shared object file`, often followed by `No module named
    'vllm._C'`. The package was built for another CUDA than torch brings along, for a torch with CUDA, or for
    a machine with libraries that this image lacks. The search follows the loader: libraries already loaded,
    RPATH, LD_LIBRARY_PATH, RUNPATH, /etc/ld.so.cache, and the folders in which torch looks.

    ## How to fix

    Install the build of the package for torch's CUDA. For system libraries, install the system's package. A
    folder in LD_LIBRARY_PATH is a stopgap: it changes what every other program loads.
    """
    for package, version, group in broken_packages(extensions):
        if unloadable := next((extension for extension in group if extension.problem), None):
            yield _unloadable(unloadable, packages)
            continue
        lacking = [extension for extension in group if extension.missing_libraries]
        if not lacking:
            continue
        worst = max(lacking, key=lambda extension: len(extension.missing_libraries))
        names = tuple(dict.fromkeys(missing.name for missing in worst.missing_libraries))
        if isinstance(torch, Absent) and all(name.startswith(_OF_TORCH) for name in names):
            continue  # PKG101 reports that torch is not installed
        message, remedy = _words(worst, names, torch, interpreter)
        yield Finding(
            f"{package} {version} {message}",
            Evidence(
                found=(
                    f"{file_name(worst.path)} needs "
                    f"{listed(names, _SHOWN)}{_lies_in(worst.missing_libraries)}"
                ),
                wanted="the loader finds every library that is needed",
                read_from=worst.path,
            ),
            location=Location(worst.path),
            remedy=remedy,
            severity=_severity(package, names, packages),
            also=tuple(Location(other.path) for other in lacking if other is not worst),
            subject=Subject("package", package, version),
        )


def _unloadable(extension: Extension, packages: Packages | Unknown) -> Finding:
    """The finding for a file that no process can load: cut short, damaged, or for another processor."""
    path, _, problem = extension.problem.rpartition(": ")
    return Finding(
        f"{extension.package} {extension.version} cannot be loaded: {file_name(path)}: {problem}",
        Evidence(found=extension.problem, wanted="an intact file for this machine", read_from=path),
        location=Location(path),
        remedy=f"pip install --force-reinstall --no-deps {extension.package}=={extension.version}",
        severity=severity(extension.package, packages),
        subject=Subject("library", path),
    )


def _severity(package: str, names: tuple[str, ...], packages: Packages | Unknown) -> Severity:
    """The severity.

    An optional package that lacks only system libraries may be a plugin for hardware that this machine lacks.
    """
    if all(map(_FFMPEG.match, names)):
        return "info"
    found = severity(package, packages)
    of_torch = any(_ANY_CUDA.match(name) or name.startswith(_OF_TORCH) for name in names)
    return found if found == "error" or of_torch or _OPENCV.match(package) else "info"


def _words(
    extension: Extension, names: tuple[str, ...], torch: TorchBuild | Unknown, interpreter: Interpreter
) -> tuple[str, str]:
    """The fault, and the next step."""
    package, version = extension.package, extension.version
    of_cuda = any(_ANY_CUDA.match(name) or name.endswith("_cuda.so") for name in names)
    if of_cuda and not isinstance(torch, Unknown):
        if not torch.cuda:
            return (
                f"is built for CUDA, and torch {torch.version} is built without CUDA: {names[0]} is missing",
                f"install a torch with CUDA, or a {package} for machines without",
            )
        wanted = next((found[1] for name in names if (found := _OF_CUDA.match(name))), "")
        if wanted and major(torch.cuda) != int(wanted):
            return (
                (
                    f"is built for CUDA {wanted}, torch {torch.version} for CUDA {torch.cuda}: {names[0]} "
                    "is missing"
                ),
                what_fits(package, version, extension, torch, interpreter),
            )
        return (
            f"needs {listed(names, _SHOWN)} of CUDA, which cannot be found",
            (
                f"install the wheel that provides it (`pip check` names it), or reinstall {package} with "
                "its dependencies"
            ),
        )
    if any(name.startswith(_OF_TORCH) for name in names):
        return (
            f"needs {names[0]}, which this torch does not have",
            what_fits(package, version, extension, torch, interpreter),
        )
    if _OPENCV.match(package):
        headless = f"{package}-headless"
        return (
            f"needs {listed(names, _SHOWN)}, which servers usually lack",
            f"pip uninstall -y {package} && pip install {headless}=={version}",
        )
    debian = sorted({_DEBIAN[name] for name in names if name in _DEBIAN})
    step = (
        f"apt-get install {' '.join(debian)}" if debian else f"install the package that provides {names[0]}"
    )
    return f"needs {listed(names, _SHOWN)}, which cannot be found", step


def _lies_in(missing: tuple[MissingLibrary, ...]) -> str:
    existing = next((library for library in missing if library.lies_in), None)
    return f"; {existing.lies_in} exists, but the loader does not search it" if existing else ""

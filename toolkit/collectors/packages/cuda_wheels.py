"""NVIDIA's wheels of CUDA libraries: the CUDA version of each, and which of them write the same files."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.index.records import RecordFile

_SUFFIXED = re.compile(r"(nvidia-[a-z0-9-]+?)-cu(\d\d)")
# From CUDA 13 on, the wheels of the toolkit's own libraries have no suffix (pypi.org/project/cuda-toolkit).
_PLAIN = re.compile(
    r"nvidia-(?:cublas|cuda-(?:cccl|crt|culibos|cuobjdump|cupti|cuxxfilt|nvcc|nvrtc|opencl|profiler-api"
    r"|runtime|sanitizer-api)|cufft|cufile|curand|cusolver|cusparse|npp|nvfatbin|nvjitlink|nvjpeg"
    r"|nvml-dev|nvptxcompiler|nvtx|nvvm)"
)
_RUNTIME = "nvidia-cuda-runtime"
_UNSUFFIXED = 13
_SHOWN = 3


@dataclass(frozen=True)
class CudaWheel:
    """An installed NVIDIA wheel with CUDA libraries. `cuda` is the major version that it is for."""

    name: str
    version: str
    cuda: int


@dataclass(frozen=True)
class SharedFiles:
    """Wheels with the same files, of which the last installed wins: their names, and the first few files."""

    wheels: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class CudaWheels:
    """All CUDA wheels, and the files that several of them install."""

    wheels: tuple[CudaWheel, ...]
    shared: tuple[SharedFiles, ...] = ()


@collector(kept=True)
def cuda_wheels(packages: Packages) -> CudaWheels:
    """Classify by NVIDIA's wheel names, and by RECORD if names differ only in the suffix."""
    runtime = packages.get(_RUNTIME)
    plain = (
        int(major) if runtime and (major := runtime.version.partition(".")[0]).isdecimal() else _UNSUFFIXED
    )
    wheels = []
    families: dict[str, list[str]] = defaultdict(list)
    for distribution in packages.distributions:
        if suffixed := _SUFFIXED.fullmatch(distribution.name):
            wheels.append(CudaWheel(distribution.name, distribution.version, int(suffixed[2])))
            families[suffixed[1]].append(distribution.location)
        elif _PLAIN.fullmatch(distribution.name):
            wheels.append(CudaWheel(distribution.name, distribution.version, plain))
            families[distribution.name].append(distribution.location)
    names = {distribution.location: distribution.name for distribution in packages.distributions}
    shared = [
        SharedFiles(tuple(names[location] for location in locations), files)
        for locations in families.values()
        if len(locations) > 1 and (files := _common(locations))
    ]
    return CudaWheels(tuple(wheels), tuple(shared))


def _common(locations: list[str]) -> tuple[str, ...]:
    """Return the first libraries that all of these RECORDs list, from the same site-packages folder."""
    lists = [
        {
            f"{Path(location).parent}/{file.path}"
            for file in RecordFile(Path(location, "RECORD")).files()
            if ".so" in file.path
        }
        for location in locations
    ]
    return tuple(sorted(set.intersection(*lists))[:_SHOWN])

"""The GPUs for which the kernels in the installed packages were compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import platformdirs

from verl_doctor.toolkit.collectors.compiled.elf_memory import ElfMemory
from verl_doctor.toolkit.collectors.compiled.extensions import Extensions
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.elf.elf import ElfFile
from verl_doctor.toolkit.sources.elf.fatbin import entries_of


@dataclass(frozen=True, order=True)
class GpuCode:
    """Machine code ("cubin"), or PTX, which the driver compiles, for an architecture.

    The architecture 90 is compute capability 9.0.

    `isa` is the version of PTX, (8, 7), and (0, 0) for machine code. `exact`: it uses features of exactly
    this architecture, as in sm_90a. What runs where:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
    """

    kind: str
    architecture: int
    isa: tuple[int, int] = (0, 0)
    exact: bool = False

    def runs_on(self, capability: int) -> bool:
        """Return whether a GPU runs it, after compilation in the case of PTX."""
        if self.exact:
            return self.architecture == capability
        if self.kind == "ptx":
            return self.architecture <= capability
        return self.architecture // 10 == capability // 10 and self.architecture <= capability


@dataclass(frozen=True)
class PackageCode:
    """The GPU code in one file of a package, each kind once.

    It is complete, or as much as was read until machine code was found for each GPU of this machine.
    """

    package: str
    version: str
    path: str
    code: tuple[GpuCode, ...]


@dataclass(frozen=True)
class PackagesCode:
    """The files with GPU code, other than those of NVIDIA's own wheels."""

    files: tuple[PackageCode, ...]


@collector(timeout=30)
def packages_code(extensions: Extensions, gpus: Gpus) -> PackagesCode | Unknown:
    """Read the code headers in each file that needs torch or CUDA, as far as this machine's GPUs require."""
    capabilities = sorted({number for device in gpus.sound if (number := capability(device.capability))})
    if not capabilities:
        return Absent("no GPU here reports its capability")
    memory = ElfMemory(platformdirs.user_cache_path("verl-doctor") / "PackagesCode")
    found = []
    for extension in extensions.extensions:
        if extension.package.startswith("nvidia-") or not extension.cuda:
            continue
        code = _code_of(extension.path, capabilities, memory)
        if code:
            found.append(PackageCode(extension.package, extension.version, extension.path, code))
    memory.save()
    return PackagesCode(tuple(found))


def capability(text: str) -> int:
    """Return a compute capability in the numbering of architectures: 90 for "9.0"; 0 if it is invalid."""
    major, _, minor = text.partition(".")
    return int(major) * 10 + int(minor) if major.isdecimal() and minor.isdecimal() else 0


def _code_of(path: str, capabilities: Iterable[int], memory: ElfMemory) -> tuple[GpuCode, ...]:
    wanted = list(capabilities)
    about = f"code for {wanted}"
    known = memory.recall(
        about,
        [path],
        lambda kept: tuple(GpuCode(kind, arch, (isa[0], isa[1]), exact) for kind, arch, isa, exact in kept),
    )
    if known is None:
        known = _read(path, wanted)
        memory.keep(about, [path], [astuple(code) for code in known])
    return known


def _read(path: str, capabilities: list[int]) -> tuple[GpuCode, ...]:
    found: dict[GpuCode, None] = {}
    with ElfFile(path) as file:
        for entry in entries_of(file):
            isa = entry.isa if entry.ptx else (0, 0)
            code = GpuCode("ptx" if entry.ptx else "cubin", entry.architecture, isa, entry.exact)
            if code not in found:
                found[code] = None
                if all(
                    any(gpu_code.kind == "cubin" and gpu_code.runs_on(number) for gpu_code in found)
                    for number in capabilities
                ):
                    break
    return tuple(found)

"""The system below the job.

It shows everything that verl's own `scripts/diagnose.py` prints, under its names, and what it omits.

What that script prints is read from verl's releases to 0.9.1 (verl-project/verl, scripts/diagnose.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.host.system import System
from verl_doctor.toolkit.collectors.installed.checkout import Checkout
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES, Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit
from verl_doctor.toolkit.commands.report.page import Fold, PageSection, Paragraph, Rank, Values
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import counted, in_bytes, ranges

_MIB = 2**20
_REQUESTED = (VLLM_NAMES, ("sglang",), ("ray",), ("torch",))
# Other packages that decide whether a verl job runs.
_OTHER_PACKAGES = (
    "transformers",
    "tensordict",
    "triton",
    "flash-attn",
    "flashinfer-python",
    "numpy",
    "pyarrow",
    "peft",
    "accelerate",
    "megatron-core",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)

_Rows = Iterable[tuple[str, str]]


def sections(seen: Seen) -> Iterator[PageSection]:
    """A line for each subject; the processors and all packages folded."""
    parts = (
        ("Python", _python),
        ("Pip", _pip),
        ("verl", _verl),
        ("Packages", _packages),
        ("Platform", _platform),
        ("node", _node),
        ("Hardware", _hardware),
        ("CUDA", _cuda),
        ("System", _memory),
        ("GPUs", _gpus),
        ("Network Test", _network),
    )
    rows = (
        (title, "; ".join(f"{name} {value}".strip() for name, value in part(seen))) for title, part in parts
    )
    of = f", on {seen.facts_of}" if seen.facts_of else ""
    shown = Values(tuple(row for row in rows if row[1]))
    yield PageSection(f"System{of}", (shown, *_lscpu(seen), *_all_packages(seen)), Rank.SYSTEM)


def _python(seen: Seen) -> _Rows:
    found = seen.facts.get(Interpreter)
    if isinstance(found, Unknown):
        yield "Version", f"not known: {found.reason}"
        return
    yield "Version", found.version
    yield "Compiler", found.compiler or "not known"
    yield "Build", found.build or "not known"
    kind = "ELF" if found.system == "Linux" else found.system
    yield "Arch", f"{found.bits}bit, {kind}, {found.machine}" if found.bits else found.machine
    yield "Executable", f"{found.executable} ({found.environment})"


def _pip(seen: Seen) -> _Rows:
    packages = seen.facts.get(Packages)
    pip = None if isinstance(packages, Unknown) else packages.get("pip")
    if pip is None:
        yield "Version", "not found: no pip is installed for this Python"
        return
    yield "Version", pip.version
    yield "Directory", posixpath.join(posixpath.dirname(pip.location), "pip")


def _verl(seen: Seen) -> _Rows:
    trees, checkout = seen.facts.get(VerlTrees), seen.facts.get(Checkout)
    if isinstance(trees, Unknown):
        yield "Version", f"not found: {trees.reason}"
        return
    yield "Version", trees.imported.version or "not known"
    yield "Directory", f"{trees.imported.folder} ({trees.imported.found_in})"
    if isinstance(checkout, Unknown):
        yield "Commit Hash", f"not known: {checkout.reason}"
    else:
        yield "Commit Hash", checkout.commit + (f" ({checkout.branch})" if checkout.branch else "")


def _packages(seen: Seen) -> _Rows:
    packages = seen.facts.get(Packages)
    if isinstance(packages, Unknown):
        yield "installed", f"not known: {packages.reason}"
        return
    for names in _REQUESTED:
        found = packages.get(*names)
        other = f" ({found.name})" if found and found.name != names[0] else ""
        yield names[0], found.version + other if found else "not found"
    for name in _OTHER_PACKAGES:
        if more := packages.get(name):
            yield more.name, more.version


def _platform(seen: Seen) -> _Rows:
    system, python = seen.facts.get(System), seen.facts.get(Interpreter)
    if isinstance(system, Unknown):
        yield "Platform", f"not known: {system.reason}"
        return
    glibc = f"-with-glibc{python.glibc}" if isinstance(python, Interpreter) and python.glibc else ""
    yield "Platform", f"{system.name}-{system.release}-{system.machine}{glibc}"
    yield "system", system.name
    yield "distribution", system.distribution or "not known"
    yield "release", system.release
    yield "version", system.version


def _node(seen: Seen) -> _Rows:
    """Yield the name of the host, which is only masked in every case if it stands alone."""
    system = seen.facts.get(System)
    if isinstance(system, System):
        yield "", system.node


def _hardware(seen: Seen) -> _Rows:
    system, limits = seen.facts.get(System), seen.facts.get(HostLimits)
    if isinstance(system, Unknown):
        return
    cpu = system.processors
    yield "machine", system.machine
    yield "processor", cpu.model or cpu.vendor or "not named by the kernel"
    shape = [counted(cpu.threads, "thread")]
    shape += [counted(cpu.cores, "core")] if cpu.cores else []
    shape += [counted(cpu.sockets, "socket")] if cpu.sockets else []
    usable = None if isinstance(limits, Unknown) else limits.subjects[0].cpus
    yield "CPU(s)", ", ".join(shape) + (f"; {usable:g} available to the job" if usable else "")


def _cuda(seen: Seen) -> _Rows:
    torch, toolkit, gpus = seen.facts.get(TorchBuild), seen.facts.get(CudaToolkit), seen.facts.get(Gpus)
    if isinstance(torch, Unknown):
        yield "CUDA Runtime", f"not known: {torch.reason}"
    else:
        yield "CUDA Runtime", torch.cuda or "none: this torch was built without CUDA"
    if isinstance(toolkit, Unknown):
        yield "CUDA Compiler", f"not looked for: {toolkit.reason}"
    else:
        found = f"release {toolkit.release or 'not known'}, {toolkit.nvcc}"
        yield (
            "CUDA Compiler",
            found if toolkit.nvcc else "not found: no nvcc in the CUDA folder",
        )
    if isinstance(gpus, Gpus):
        yield "Driver", f"{gpus.driver or 'not known'}, supports CUDA up to {gpus.cuda or 'not known'}"


def _memory(seen: Seen) -> _Rows:
    memory, shared = seen.facts.get(HostMemory), seen.facts.get(SharedMemory)
    if isinstance(memory, Unknown):
        yield "CPU Memory", f"not known: {memory.reason}"
    else:
        free = f", {in_bytes(memory.available)} available" if memory.available is not None else ""
        yield "CPU Memory", (in_bytes(memory.total) if memory.total else "not known") + free
    if isinstance(shared, SharedMemory):
        yield "/dev/shm", f"{in_bytes(shared.size)}, {in_bytes(shared.free)} free"  # noqa: S108 - it is named, not used


def _gpus(seen: Seen) -> _Rows:
    gpus = seen.facts.get(Gpus)
    if isinstance(gpus, Unknown):
        yield "GPU Count", f"0: {gpus.reason}"
        return
    if gpus.refused:
        yield "GPU Count", f"not known: the driver answers {gpus.refused}"
        return
    yield "GPU Count", str(len(gpus.devices))
    alike: dict[tuple[str, str], list[int]] = {}
    for device in gpus.devices:
        alike.setdefault((_type(device), _memory_of(device)), []).append(device.index)
    for (kind, memory), numbers in alike.items():
        yield f"GPU {ranges(numbers)} Type", kind
        yield f"GPU {ranges(numbers)} Memory", memory


def _type(device: Device) -> str:
    if device.trouble:
        return f"{device.name or 'not known'}: {device.trouble}"
    capability = f", compute capability {device.capability}" if device.capability else ""
    return f"{device.name}{capability}{', divided by MIG' if device.mig else ''}"


def _memory_of(device: Device) -> str:
    return in_bytes(device.memory.total * _MIB) if device.memory else "not known"


def _network(seen: Seen) -> _Rows:
    for index in seen.indexes or ():
        took = f"DNS: {index.resolving:.4f} sec, LOAD: {index.loading:.4f} sec"
        yield f"Timing for {index.host}", f"{took}; {index.trouble}" if index.trouble else took


def _lscpu(seen: Seen) -> Iterator[Fold]:
    system = seen.facts.get(System)
    if isinstance(system, System) and system.lscpu:
        yield Fold(
            "The processors, as lscpu reports them",
            (Paragraph("; ".join(" ".join(line.split()) for line in system.lscpu)),),
        )


def _all_packages(seen: Seen) -> Iterator[Fold]:
    packages = seen.facts.get(Packages)
    if isinstance(packages, Unknown) or not packages.distributions:
        return
    names = [
        f"{distribution.name} {distribution.version}" + (" (editable)" if distribution.editable else "")
        for distribution in packages.distributions
    ]
    yield Fold(f"All {counted(len(names), 'installed package')}", (Paragraph(", ".join(names)),))

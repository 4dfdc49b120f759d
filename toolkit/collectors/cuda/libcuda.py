"""The driver's library: which `libcuda.so.1` the job would load and why, and which others exist here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.collectors.gpu.nvidia_driver import driver_version
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.elf.elf import ElfFile
from verl_doctor.toolkit.sources.elf.loader import ENDS_SEARCH, Candidate, Loader, NoSuchLoader
from verl_doctor.toolkit.system.file_systems import file_systems

SONAME = "libcuda.so.1"
# Common driver folders besides the loader's own: Google's and other device plugins, WSL2, NixOS,
# distributions.
_USUAL = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/run/nvidia/driver/usr/lib64",
    "/run/nvidia/driver/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib/*-linux-gnu",
    "/usr/lib/*-linux-gnu/nvidia/current",
    "/usr/lib/nvidia*",
    "/usr/local/cuda*/compat",
)
_IN_NAME = re.compile(r"libcuda\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")
_IN_FILE = re.compile(rb"\0(\d{3}\.\d{2,3}(?:\.\d{2,3})?)\0")
_COMPAT = re.compile(r"(?:^|[/_-])compat(?:$|[/_-])")
# Without one of these symbols a library cannot reach a device: a stub only exports the driver's names.
_REACHES_A_DEVICE = frozenset({"ioctl", "dlopen", "open", "open64", "syscall"})
_OF_SYSTEM = ("libc.so.6", "libstdc++.so.6", "libz.so.1")
_LARGEST = 512 * 1024 * 1024  # bytes
_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True)
class Library:
    """A file with the name of the driver's library, and `real`, the target of its links.

    `version` is the driver version it belongs to, "" if unknown. `stub`: it is made for the linker only.
    `compat`: it comes from CUDA's package for older drivers. `among_others`: its folder is a system folder,
    with libraries other than the driver's. `how` and `entry` describe how the loader finds it (see
    `loader.Candidate`), "" if it does not. With a `trouble` the loader skips it.
    """

    path: str
    real: str = ""
    version: str = ""
    stub: bool = False
    compat: bool = False
    among_others: bool = False
    how: str = ""
    entry: str = ""
    trouble: str = ""

    @property
    def ends_search(self) -> bool:
        """Whether the loader's search ends here."""
        return self.trouble in ENDS_SEARCH

    @property
    def folder(self) -> str:
        """The folder in which it was found."""
        return os.path.dirname(self.path)  # noqa: PTH120 - a path of the examined machine


@dataclass(frozen=True)
class LibCuda:
    """What the target's Python would load as `libcuda.so.1`, as the job starts it.

    `driver` is the version of the kernel module, "" if unknown. `candidates` are in the order of the loader's
    search, `elsewhere` are those outside it.
    """

    driver: str = ""
    candidates: tuple[Library, ...] = ()
    elsewhere: tuple[Library, ...] = ()

    @property
    def loaded(self) -> Library | None:
        """The library that is loaded; None if there is none."""
        first = next((candidate for candidate in self.candidates if candidate.ends_search), None)
        return first if first and not first.trouble else None

    @property
    def drivers_own(self) -> Library | None:
        """The driver's own library, found by the search or not: with the driver's version if known."""
        sound = [
            candidate
            for candidate in (*self.candidates, *self.elsewhere)
            if not (
                candidate.trouble or candidate.stub or (candidate.compat and candidate.version != self.driver)
            )
        ]
        same = [library for library in sound if library.version == self.driver and self.driver]
        unknown = [library for library in sound if not (library.version and self.driver)]
        return next(iter([*same, *unknown]), None)


@collector(timeout=15)
def libcuda(
    machine: Machine, interpreter: Interpreter, variables: Variables, job: JobVariables
) -> LibCuda | Unknown:
    """Search as the loader does, and inspect the files."""
    if not has_device_nodes(machine):
        return Absent("there is no NVIDIA GPU here")
    environ = child_environ(machine, variables, job)
    try:
        loader = Loader(machine, interpreter.executable, environ)
    except NoSuchLoader as reason:
        return Unknown(f"which libcuda would be loaded cannot be determined: {reason}")
    candidates = list(loader.all(SONAME))
    reached = {machine.real(candidate.path) for candidate in candidates}
    elsewhere = [
        found
        for path in dict.fromkeys(_elsewhere(machine, loader, interpreter, environ))
        if machine.real(path) not in reached
        for found in loader.all(path)
        if found.trouble != "dangling link"
    ]
    looked_at: dict[str, Library] = {}
    return LibCuda(
        driver_version(machine),
        tuple(_distinct(_library(machine, candidate, looked_at) for candidate in candidates)),
        tuple(
            _distinct(
                replace(_library(machine, candidate, looked_at), how="", entry="") for candidate in elsewhere
            )
        ),
    )


def _elsewhere(
    machine: Machine, loader: Loader, interpreter: Interpreter, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield other places of such files: the loader's cache, container runtimes' mounts, the usual folders."""
    for entry in loader.cached(SONAME):
        yield entry.path
    for mount in file_systems(machine):
        folder, name = os.path.split(mount.mounted_on)
        if name.startswith("libcuda.so"):
            yield f"{folder}/{SONAME}"
            yield mount.mounted_on
    prefixes = dict.fromkeys(
        [interpreter.prefix, environ.get("CONDA_PREFIX", ""), environ.get("CUDA_HOME", "")]
    )
    folders = [
        f"{prefix}/{below}"
        for prefix in prefixes
        if prefix
        for below in ("lib", "lib64", "compat", "cuda-compat")
    ]
    for pattern in (*_USUAL, *folders):
        for found in sorted(machine.root.glob(pattern.lstrip("/"))):
            yield f"/{found.relative_to(machine.root)}/{SONAME}"


def _library(machine: Machine, candidate: Candidate, looked_at: dict[str, Library]) -> Library:
    real = machine.real(candidate.path)
    if real not in looked_at:
        looked_at[real] = _looked_into(machine, real) if not candidate.trouble else Library(real, real)
    return replace(
        looked_at[real],
        path=candidate.path,
        among_others=any(os.path.exists(machine.at(candidate.path).parent / name) for name in _OF_SYSTEM),
        compat=bool(_COMPAT.search(candidate.path) or _COMPAT.search(real)),
        how=candidate.how,
        entry=candidate.entry,
        trouble=candidate.trouble,
    )


def _looked_into(machine: Machine, real: str) -> Library:
    file = str(machine.at(real))
    with ElfFile(file) as elf:
        stub = not _REACHES_A_DEVICE & {symbol.name for symbol in elf.undefined()}
    named = _IN_NAME.search(real)
    version = named[1] if named else "" if stub else _version_inside(file)
    return Library(real, real, version, stub)


def _version_inside(file: str) -> str:
    """Return the driver's version that a library contains as a string, if it contains exactly one."""
    found: set[bytes] = set()
    try:
        with open(file, "rb") as stream:  # noqa: PTH123
            before = b""
            for _ in range(_LARGEST // _CHUNK):
                chunk = stream.read(_CHUNK)
                if not chunk:
                    break
                found.update(_IN_FILE.findall(before + chunk))
                before = chunk[-32:]
    except OSError:
        return ""
    return found.pop().decode() if len(found) == 1 else ""


def _distinct(libraries: Iterable[Library]) -> Iterator[Library]:
    """Yield one entry per folder and file, because the loader's folders are often links to each other."""
    seen = set()
    for library in libraries:
        if (key := (library.real, library.how, library.entry)) not in seen:
            seen.add(key)
            yield library

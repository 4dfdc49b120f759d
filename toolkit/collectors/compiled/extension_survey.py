"""Simulates the loader for each compiled file of the installed packages, in a process that loaded torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import platformdirs

from verl_doctor.toolkit.collectors.compiled.elf_memory import ElfMemory
from verl_doctor.toolkit.collectors.compiled.extensions import (
    Extension,
    Extensions,
    MissingLibrary,
    MissingSymbol,
    MissingVersion,
)
from verl_doctor.toolkit.collectors.compiled.files import compiled_files, stray_modules
from verl_doctor.toolkit.collectors.compiled.linkage import Closure, Process
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.elf.demangle import demangled, is_same_name, qualified_prefix
from verl_doctor.toolkit.sources.elf.elf import RequiredVersion, Undefined
from verl_doctor.toolkit.sources.elf.loader import Loader, NoSuchLoader

_LIBRARIES = ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda", "torch_python")


def start_process(loader: Loader, memory: ElfMemory, sys_path: Iterable[str]) -> Process:
    """Return a process with the interpreter alone, and torch's search folders for CUDA libraries.

    In these folders, torch searches for the libraries that the loader does not find.
    """
    process = Process(loader, memory, fallback=tuple(_nvidia_folders(sys_path)))
    closure = process.load(loader.program.path)
    process.everybody += [*closure.paths, loader.header.interpreter]
    return process


def load_torch(process: Process, folder: str) -> tuple[str, ...]:
    """Load what `import torch` loads, its global dependencies first (torch/__init__.py); return the paths."""
    for_all = f"{folder}/lib/libtorch_global_deps.so"
    if os.path.exists(for_all):
        process.everybody += process.load(for_all).paths
    found: dict[str, None] = {}
    for name in _LIBRARIES:
        if os.path.exists(path := f"{folder}/lib/lib{name}.so"):
            found.update(dict.fromkeys(process.load(path).paths))
    return tuple(found)


def _nvidia_folders(sys_path: Iterable[str]) -> list[str]:
    """Return the folders of `_preload_cuda_deps` in torch/__init__.py."""
    folders: list[str] = []
    for site in sys_path:
        try:
            names = sorted(os.listdir(f"{site}/nvidia"))  # noqa: PTH208 - names alone
        except OSError:
            continue
        folders += [f"{site}/nvidia/{name}/lib" for name in names]
    return folders


_SHOWN = 6  # missing symbols that are explained; the others are counted
_SIMILAR = 4
# Libraries of torch, of CUDA, and of the X and GL systems that server images lack: files that need them are
# examined.
_INFORMATIVE = re.compile(
    r"lib(torch|c10|aoti|shm\.|cuda|cudart|cudnn|cublas|cufft|cufile|curand|cusparse|cusolver|cupti|nccl"
    r"|nvrtc|nvJitLink|nvshmem|nvToolsExt|nvjpeg|nvidia|numa|ibverbs|rdmacm|mlx|GL|EGL|SM\.|ICE\.|Xext"
    r"|Xrender|gthread|glib)[\w-]*\.so"
)
_OF_TORCH = re.compile(r"/lib(?:torch|c10)[\w-]*\.so$")
_CUDA = re.compile(r"lib(?:cu[a-z]|c10_cuda|torch_cuda|nccl|nvrtc|nvJitLink|nvshmem)")
# The driver's own libraries: a machine without a GPU has none, and other rules judge which is loaded.
_DRIVER = re.compile(r"lib(cuda|nvidia-[\w-]+)\.so")
_DRIVER_SYMBOL = re.compile(r"cu[A-Z]|nvml[A-Z]")
# PEP 3149: only this interpreter imports such a file.
_TAG = re.compile(r"\.(cpython-\d+[a-z]*)-[\w-]+\.so$")
# Files that Python imports by name. Other .so files may be linker scripts, or for another system.
_MODULE = re.compile(r"(?:\.(?:cpython-\d+[a-z]*-[\w-]+|abi3)|/_\w+)\.so$")
_LATER = re.compile(r"/nvidia/[^/]+/lib/")
_LOCAL_TORCH = re.compile(r"torch(\d+\.\d+(?:\.\d+)?)")
_PINNED_TORCH = re.compile(r"torch\s*\(?===?\s*([\d.]+)")
# Files of one package that differ only in these parts are made for different machines; one of them is loaded.
_VARIANT = re.compile(
    (
        r"[-_]?(?:AVX\d*|AMX|cpu|cuda\d*|cu\d+|xpu|hip|rocm\d*|torch\d+)(?=[-_.])|(?:_\d+){2,3}(?=\.)|(?<="
        r"[a-z_])\d+(?=\.)"
    ),
    re.IGNORECASE,
)
# nixl_ep_cpp_torch213.cpython-312-x86_64-linux-gnu.so is for torch 2.13.
_TORCH_IN_NAME = re.compile(r"torch(\d)(\d+)(?=[-_.])")


def survey(
    machine: Machine,
    interpreter: Interpreter,
    packages: Packages,
    torch: TorchBuild | Unknown,
    environ: Mapping[str, str],
) -> Extensions | Unknown:
    """Check every compiled file as a process with this environment would load it.

    Headers are kept in the doctor's cache.
    """
    memory = ElfMemory(platformdirs.user_cache_path("verl-doctor") / "Extensions")
    try:
        loader = Loader(machine, interpreter.executable, environ)
    except (NoSuchLoader, OSError) as error:
        return Unknown(str(error))
    process = start_process(loader, memory, interpreter.sys_path)
    try:
        return _Survey(machine, interpreter, packages, torch, process).look()
    finally:
        process.close()
        memory.save()


class _Survey:
    """A single survey of all compiled files."""

    def __init__(
        self,
        machine: Machine,
        interpreter: Interpreter,
        packages: Packages,
        torch: TorchBuild | Unknown,
        process: Process,
    ) -> None:
        self._machine = machine
        self._cache_tag = interpreter.cache_tag
        self._process = process
        self._memory = process.memory
        self._torch = () if isinstance(torch, Unknown) else load_torch(process, torch.folder)
        self._torch_has_cuda = not isinstance(torch, Unknown) and bool(torch.cuda)
        torch_there = packages.get("torch")
        self._torch_time = _time_of(torch_there) if torch_there else 0.0
        listed = dict(compiled_files(packages.distributions, self._memory))
        self._files = {**dict(stray_modules(interpreter.site_packages, packages.distributions)), **listed}
        self._by_name: dict[str, list[str]] = {}
        for path in self._files:
            self._by_name.setdefault(os.path.basename(path), []).append(path)  # noqa: PTH119 - thousands of names

    def look(self) -> Extensions:
        """Check every file."""
        found = []
        for path, distribution in self._files.items():
            extension = self._extension(path, distribution)
            if extension is not None:
                found.append(extension)
        return Extensions(tuple(self._in_words(self._with_variants(found))), len(self._files))

    def _concerns(self, path: str, distribution: Distribution) -> bool:
        """Return whether a process of this interpreter may load a file.

        Of NVIDIA's wheels only what torch loads counts; the rest are plugins.
        """
        tag = _TAG.search(path)
        if tag is not None and tag[1] != self._cache_tag:
            return False
        return not distribution.name.startswith("nvidia-") or path in self._torch

    def _extension(self, path: str, distribution: Distribution) -> Extension | None:
        if not self._concerns(path, distribution):
            return None
        header = self._memory.header(path)
        versions = tuple(self._missing_versions(path))
        informative = [name for name in header.needed if _INFORMATIVE.match(name)]
        damaged = bool(header.problem and (_MODULE.search(path) or path in self._torch))
        if not informative and not versions and not damaged:
            return None
        entry: dict[str, Any] = {
            "path": path,
            "package": distribution.name,
            "version": distribution.version,
            "machine": header.machine,
            "problem": f"{path}: {header.problem}" if header.problem else "",
            "uses_torch": any(name.startswith(("libtorch", "libc10")) for name in informative),
            "cuda": any(_CUDA.match(name) for name in informative),
            "cuda_runtimes": tuple(name for name in informative if name.startswith("libcudart.so")),
            "missing_versions": versions,
            "built_for_torch": _built_for(distribution) or _named_torch(path),
            "before_torch": 0 < _time_of(distribution) < self._torch_time,
        }
        if not header.bits:
            return Extension(**entry)
        wanted = self._process.loader.header.machine
        if header.machine != wanted:
            return Extension(
                **{**entry, "problem": f"{path}: it is for {header.machine}, this machine is {wanted}"}
            )
        closure = self._process.closure(path)
        for library in closure.paths:
            if problem := self._memory.header(library).problem:
                return Extension(**{**entry, "problem": f"{library}: {problem}"})
        missing = tuple(self._missing_libraries(closure))
        # A symbol whose version its library lacks is reported as that version.
        reported = {version.version for version in versions}
        symbols = () if missing else self._unresolved(path, distribution, closure)
        symbols = tuple(symbol for symbol in symbols if symbol.version not in reported)
        return Extension(
            **entry,
            missing_libraries=missing,
            missing_symbols=tuple(
                MissingSymbol(
                    symbol.name, symbol.name, expected_of=_expected_of(symbol, (*closure.paths, *self._torch))
                )
                for symbol in symbols[:_SHOWN]
            ),
            symbols_missing=len(symbols),
        )

    def _missing_libraries(self, closure: Closure) -> Iterator[MissingLibrary]:
        """Libraries that are not found.

        As a rule, a library of another package is loaded by that package's own code.
        """
        for name, requirer in closure.missing:
            if _DRIVER.match(name):
                continue
            copies = self._by_name.get(name, [])
            if all(_LATER.search(path) for path in copies):
                yield MissingLibrary(name, requirer, copies[0] if copies else "")

    def _unresolved(self, path: str, distribution: Distribution, closure: Closure) -> tuple[Undefined, ...]:
        """Symbols exported neither by the file's dependencies, nor by torch, nor by earlier files.

        Earlier files are those that its package may load before it.

        The driver's functions are left out, see `_DRIVER`.
        """
        more = (*self._torch, *self._may_be_loaded(path, distribution, closure))
        key = ("unresolved", (path, *self._process.everybody, *closure.paths, *more))
        known = self._memory.recall(*key, lambda kept: tuple(Undefined(*symbol) for symbol in kept))
        if known is None:
            known = self._process.unresolved(path, closure, more)
            self._memory.keep(*key, [list(symbol) for symbol in known])
        return tuple(symbol for symbol in known if not _DRIVER_SYMBOL.match(symbol.name))

    def _may_be_loaded(self, path: str, distribution: Distribution, closure: Closure) -> list[str]:
        """Files that the package's code may load before this: its other files, NVIDIA's, those it names."""
        site = str(Path(distribution.location).parent)
        top = path.removeprefix(f"{site}/").partition("/")[0]
        family = _family(distribution.name)
        found = [
            other
            for other, owner in self._files.items()
            if other.startswith(f"{site}/{top}/") or _family(owner.name) == family or _LATER.search(other)
        ]
        named = (path for name, _ in closure.missing for path in self._by_name.get(name, ()))
        return [other for other in dict.fromkeys((*found, *named)) if other != path]

    def _missing_versions(self, path: str) -> Iterator[MissingVersion]:
        for required in self._memory.header(path).requires:
            library = self._process.loaded.get(required.library)
            if required.weak or library is None:
                continue
            defines = self._memory.header(library).defines
            if defines and required.version not in defines:
                stem = required.version.rpartition("_")[0]
                newest = max(
                    (version for version in defines if version.startswith(f"{stem}_")),
                    key=_numbers,
                    default="",
                )
                yield MissingVersion(
                    required.version, required.library, library, newest, self._defined_by(required)
                )

    def _defined_by(self, required: RequiredVersion) -> str:
        """A file of the same name, later on the search path, whose symbols have the version."""
        others = (
            candidate.path
            for candidate in self._process.loader.all(required.library)
            if not candidate.trouble
        )
        return next((path for path in others if required.version in self._memory.header(path).defines), "")

    def _with_variants(self, found: list[Extension]) -> Iterator[Extension]:
        """Name for each file that cannot be loaded another file that is loaded in its place."""
        bad = {extension.path for extension in found if not extension.loads}
        judged = {extension.path for extension in found}
        # Files without CUDA replace those with it only if torch has no CUDA either.
        candidates = judged if self._torch_has_cuda else self._files
        sound = {_without_variant(path): path for path in candidates if path not in bad}
        for extension in found:
            # A damaged file was meant to be loaded: no substitute is named for it.
            has_none = (
                extension.loads or extension.package == "torch" or self._memory.header(extension.path).problem
            )
            instead = "" if has_none else sound.get(_without_variant(extension.path), "")
            yield replace(extension, instead=instead)

    def _in_words(self, every: Iterable[Extension]) -> Iterator[Extension]:
        """Add readable names for the missing symbols, and what torch has in their place."""
        found = list(every)
        similar = {
            symbol.name: self._similar(symbol.name)
            for extension in found
            for symbol in extension.missing_symbols
        }
        words = demangled(self._machine, [*similar, *(name for names in similar.values() for name in names)])
        for extension in found:
            symbols = tuple(
                replace(
                    symbol,
                    words=words[symbol.name],
                    similar=tuple(words[name] for name in similar[symbol.name]),
                )
                for symbol in extension.missing_symbols
            )
            yield replace(extension, missing_symbols=symbols)

    def _similar(self, name: str) -> tuple[str, ...]:
        """Return the symbols that torch's own libraries export under the same name."""
        prefix = qualified_prefix(name)
        own = [path for path in self._torch if _OF_TORCH.search(path)]
        if not prefix or not own:
            return ()
        known = self._memory.recall(f"similar to {name}", own, lambda kept: tuple(map(str, kept)))
        if known is None:
            others = (
                other
                for other, _ in self._process.exports_starting(prefix, own)
                if is_same_name(prefix, other)
            )
            known = tuple(islice(others, _SIMILAR))
            self._memory.keep(f"similar to {name}", own, list(known))
        return known


def _family(name: str) -> str:
    """Return the name shared by distributions of one project.

    Examples are transformer-engine-cu12 and transformer-engine-torch.
    """
    return "-".join(name.split("-")[:2])


def _expected_of(symbol: Undefined, libraries: Iterable[str]) -> str:
    """Return the CUDA library to which a function seems to belong.

    For example, `ncclCommInitRank` belongs to libnccl, and `cudaMalloc` to libcudart.
    """
    plain = symbol.name.lstrip("_").lower()
    for path in libraries:
        name = os.path.basename(path)  # noqa: PTH119 - a name, no path
        stem = name.removeprefix("lib").partition(".so")[0].lower()
        if symbol.library == name or (
            _CUDA.match(name) and plain.startswith("cuda" if stem == "cudart" else stem)
        ):
            return path
    return ""


def _without_variant(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{folder}/{_VARIANT.sub('', name)}"


def _built_for(distribution: Distribution) -> str:
    """Return the torch a package was built for: pinned as a requirement, or in its version's local part."""
    local = _LOCAL_TORCH.search(distribution.version.partition("+")[2])
    pins = (
        _PINNED_TORCH.match(requirement)
        for requirement in distribution.requires
        if "extra" not in requirement
    )
    return local[1] if local else next((pin[1] for pin in pins if pin), "")


def _named_torch(path: str) -> str:
    """Return the torch version in a file's name, in a package that has one file per version."""
    found = _TORCH_IN_NAME.search(os.path.basename(path))  # noqa: PTH119 - a name, no path
    return f"{found[1]}.{found[2]}" if found else ""


def _time_of(distribution: Distribution) -> float:
    """Return the installation time, in seconds since the epoch; 0 if unknown."""
    try:
        return os.stat(f"{distribution.location}/RECORD").st_mtime  # noqa: PTH116
    except OSError:
        return 0.0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.rpartition("_")[2])))

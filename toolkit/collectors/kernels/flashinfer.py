"""FlashInfer: the installed packages, and the kernels already compiled for this machine's GPUs.

Where it searches: flashinfer/jit/env.py and flashinfer/jit/core.py of releases 0.2 to 0.7.2.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, read, statements

# flashinfer/jit/sampling.py
_SAMPLER = ("sampling.cu", "renorm.cu", "flashinfer_sampling_binding.cu")
_DIRECTIVE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|endif|include)\b(?:\s*[<\"]([^>\"]+)[>\"])?", re.MULTILINE)
# The headers of CUDA itself: cuda_runtime.h, curand_kernel.h. The C++ libraries of CUDA come with FlashInfer.
_OF_CUDA = re.compile(r"cu\w+\.h")


def cuda_headers(data: Path) -> tuple[str, ...]:
    """Return the names of the CUDA headers included, sorted. `data` is FlashInfer's folder of sources."""
    roots = (data / "include", data / "csrc")
    todo = [data / "csrc" / name for name in _SAMPLER]
    seen: set[Path] = set()
    outside: set[str] = set()
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _included(file):
            here = (folder / name for folder in (file.parent, *roots))
            own = next(filter(Path.is_file, here), None)
            if own is not None:
                todo.append(own.resolve())
            elif _OF_CUDA.fullmatch(name):
                outside.add(name)
    return tuple(sorted(outside))


def _included(file: Path) -> Iterator[str]:
    """Yield the names that a source includes unconditionally but for its own include guard."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return
    directives = list(_DIRECTIVE.finditer(text))
    depth = -1 if directives and directives[0][1] == "ifndef" else 0
    for directive in directives:
        if directive[1] == "include":
            if depth == 0 and directive[2]:
                yield directive[2]
        else:
            depth += -1 if directive[1] == "endif" else 1


_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)
# A part of the name of a cache folder: "90a" for a GPU of capability 9.0.
_ARCHITECTURE = re.compile(r"(\d+)[a-z]?(?:\+PTX)?")
_PROVIDER = re.compile(r"sm(\d+)[a-z]?")


@dataclass(frozen=True)
class FlashInfer:
    """The installed FlashInfer.

    `cubin` and `jit_cache` are the versions of its wheels with compiled kernels, "" if missing.

    `capability` is the GPUs' ("9.0"). `built` are the kernels that exist for them, by name ("sampling"), from
    a wheel or from an earlier run, `cache` is the folder for those that it compiles. `refuses_others`: it
    raises if one of its wheels has another version; otherwise it continues without that wheel. `headers` are
    those of the CUDA toolkit that its sampler includes.
    """

    version: str
    folder: str
    capability: str
    cache: str
    built: tuple[str, ...] = ()
    cubin: str = ""
    jit_cache: str = ""
    refuses_others: bool = False
    headers: tuple[str, ...] = ()


@collector()
def flashinfer(
    interpreter: Interpreter,
    packages: Packages,
    resources: Resources,
    variables: JobVariables,
    machine: Machine,
) -> FlashInfer | Unknown:
    """Read its version from its folder, and search for compiled kernels where it would."""
    sites = [Path(entry) for entry in interpreter.sys_path]
    folder = next(
        (site / "flashinfer" for site in sites if os.path.isfile(site / "flashinfer" / "__init__.py")), None
    )
    if folder is None:
        return Absent("FlashInfer is not installed in this environment")
    capabilities = {gpu.capability for gpu in resources.gpus or ()}
    if not capabilities:
        return Absent(f"FlashInfer's kernels are for GPUs, and {resources.why or 'there is none here'}")
    if len(capabilities) > 1 or "" in capabilities:
        return Unknown("the GPUs of this machine are of several kinds, or do not report their kind")
    capability = capabilities.pop()
    installed = packages.get("flashinfer-python")
    version = _own_version(folder) or (installed.version if installed else "")
    base = variables.get("FLASHINFER_WORKSPACE_BASE") or machine.home
    by_version = _keeps_apart(folder)
    cache = Path(base, ".cache", "flashinfer", version if by_version else "")
    cubin, jit_cache = packages.get("flashinfer-cubin"), packages.get("flashinfer-jit-cache")
    number = capability.replace(".", "")
    named = variables.get("FLASHINFER_CUDA_ARCH_LIST" if by_version else "TORCH_CUDA_ARCH_LIST")
    built = {*_compiled_before(cache, named or capability), *_brought(folder)}
    if jit_cache is not None and belongs(jit_cache.version, version):
        built.update(_from_wheels(sites, number))
    return FlashInfer(
        version=version,
        folder=str(folder),
        capability=capability,
        cache=str(cache),
        built=tuple(sorted(built)),
        cubin=cubin.version if cubin else "",
        jit_cache=jit_cache.version if jit_cache else "",
        refuses_others=_refuses_others(folder) and not variables.get("FLASHINFER_DISABLE_VERSION_CHECK"),
        headers=cuda_headers(folder / "data"),
    )


def belongs(wheel: str, version: str) -> bool:
    """Return whether a wheel's version matches FlashInfer's.

    It may add the CUDA that it was built with ("0.6.12+cu130").
    """
    return wheel == version or wheel.startswith(f"{version}+")


def _own_version(folder: Path) -> str:
    """Return FlashInfer's own version, which may be "0.0.0+unknown" in a local build."""
    try:
        match = _VERSION.search((folder / "_build_meta.py").read_text("utf-8", "replace"))
    except OSError:
        return ""
    return match[1] if match else ""


def _compiled_before(cache: Path, capabilities: str) -> Iterator[str]:
    """Yield kernels of earlier runs, in folders named after all architectures compiled for ("80_90a")."""
    wanted = {
        match[1] for match in map(_ARCHITECTURE.fullmatch, capabilities.replace(".", "").split()) if match
    }
    for architectures in _folders(cache):
        if {_digits(part) for part in architectures.name.split("_")} == wanted:
            yield from _names(architectures / "cached_ops")


def _digits(architecture: str) -> str:
    match = _ARCHITECTURE.fullmatch(architecture)
    return match[1] if match else ""


def _brought(folder: Path) -> Iterator[str]:
    """Yield the kernels in the package itself; a library of an old release (0.2) includes the sampler."""
    yield from _names(folder / "data" / "aot")
    if any(folder.glob("*_kernels*.so")):
        yield "sampling"


def _from_wheels(sites: list[Path], number: str) -> Iterator[str]:
    """Yield the kernels of flashinfer-jit-cache.

    From 0.7 on, each architecture has a package below it (`providers/sm90a`).
    """
    for site in sites:
        wheel = site / "flashinfer_jit_cache"
        yield from _names(wheel / "jit_cache")
        for provider in _folders(wheel / "providers"):
            if (match := _PROVIDER.fullmatch(provider.name)) and match[1] == number:
                yield from _names(provider / "jit_cache")


def _names(folder: Path) -> Iterator[str]:
    """Kernels in folders of the same name: `sampling/sampling.so`."""
    for kernel in _folders(folder):
        if os.path.isfile(kernel / f"{kernel.name}.so"):
            yield kernel.name


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []


def _keeps_apart(folder: Path) -> bool:
    """Return whether each release has a separate cache, as newer ones do."""
    source = read(folder / "jit" / "env.py")
    return not isinstance(source, Unreadable) and b"flashinfer_version" in source


def _refuses_others(folder: Path) -> bool:
    """Return whether its search for wheels raises on another version, as it did until 0.7 caught that."""
    path = folder / "jit" / "env.py"
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return False
    return any(
        isinstance(part, ast.Raise)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "_get_cubin_dir"
        for part in statements(node)
    )

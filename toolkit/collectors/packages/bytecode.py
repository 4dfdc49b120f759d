"""How many sources of the large packages have a bytecode cache that the target's Python would use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.facts import Absent, Unknown, collector

# Packages that every process of a verl job imports and that are large enough to matter.
_OF_THE_JOB = ("torch", "transformers", "vllm", "ray", "verl", "sglang")
_PACKAGES = (
    *_OF_THE_JOB,
    "tensordict",
    "flashinfer",
    "triton",
    "numpy",
    "pandas",
)


@dataclass(frozen=True)
class PackageBytecode:
    """One package folder: the number of its sources, and of those without a cache."""

    name: str
    folder: str
    sources: int
    missing: int


@dataclass(frozen=True)
class Bytecode:
    """The caches of the large packages.

    `writable`: this user could write caches where Python would look for them. `prefix` is the folder in
    `PYTHONPYCACHEPREFIX`, empty if caches are stored with their sources. `installs` are the folders of the
    packages that an installer fills, not a checkout or a home folder.
    """

    packages: tuple[PackageBytecode, ...]
    writable: bool
    prefix: str = ""
    installs: tuple[str, ...] = ()

    @property
    def sources(self) -> int:
        """Return the total number of sources."""
        return sum(package.sources for package in self.packages)

    @property
    def missing(self) -> int:
        """Return the total number of sources without a cache."""
        return sum(package.missing for package in self.packages)


@collector(timeout=20, kept=True)
def bytecode(interpreter: Interpreter, variables: Variables, listings: Listings) -> Bytecode | Unknown:
    """Count sources and caches by listing folders.

    Caches are not opened: one that is older than its source counts as present, which is rare and costs one
    compilation. All folders of the packages are listed, without sampling: about 0.1 s for torch, vLLM,
    transformers and Ray.
    """
    if not interpreter.cache_tag:
        return Unknown("this Python keeps no bytecode caches")
    prefix = variables.get("PYTHONPYCACHEPREFIX")
    folders = list(_package_folders(interpreter))
    if not any(name in _OF_THE_JOB for name, _ in folders):
        return Absent(f"none of {', '.join(_OF_THE_JOB)} is installed in this environment")
    counted = tuple(_count(name, folder, interpreter.cache_tag, prefix, listings) for name, folder in folders)
    places = [Path(prefix)] if prefix else [folder for _, folder in folders]
    around = dict.fromkeys(str(folder.parent) for _, folder in folders)
    return Bytecode(
        counted,
        all(_writable(place) for place in places),
        prefix,
        tuple(filter(_is_filled_by_installer, around)),
    )


def _package_folders(interpreter: Interpreter) -> Iterator[tuple[str, Path]]:
    """Yield where an import finds the packages: a folder of PYTHONPATH precedes site-packages."""
    for name in _PACKAGES:
        for entry in dict.fromkeys((*interpreter.sys_path, *interpreter.site_packages)):
            folder = Path(entry, name)
            if os.path.isfile(folder / "__init__.py"):
                yield name, folder
                break


def _is_filled_by_installer(folder: str) -> bool:
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return False


def _count(name: str, top: Path, tag: str, prefix: str, listings: Listings) -> PackageBytecode:
    sources = missing = 0
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        listing = listings.of(folder)
        waiting += [
            f"{folder}/{inner}" for inner in listing.folders if "." not in inner and inner != "__pycache__"
        ]
        if listing.sources:
            here = {source.removesuffix(".py") for source in listing.sources}
            cached = _cached(f"{prefix}{folder}" if prefix else f"{folder}/__pycache__", tag)
            sources += len(here)
            missing += len(here - cached)
    return PackageBytecode(name, str(top), sources, missing)


def _cached(folder: str, tag: str) -> set[str]:
    ending = f".{tag}.pyc"
    try:
        return {name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)}  # noqa: PTH208
    except OSError:
        return set()


def _writable(place: Path) -> bool:
    """Return whether this user may write here, or where the first missing folder would be created."""
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    return os.access(place, os.W_OK)

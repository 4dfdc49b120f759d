"""What the modules, classes and libraries that a log names are installed with.

The source is the list in `toolkit/data/packages_in_logs.toml`.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from verl_doctor.toolkit.system import toml

_SHORTEST = 6  # letters of a name that others extend


@dataclass(frozen=True)
class _Packages:
    same_name: frozenset[str]
    from_source: frozenset[str]
    served: frozenset[str]
    distributions: Mapping[str, str]
    namespaces: Mapping[str, str]
    trees: Mapping[str, str]
    cuda_wheels: Mapping[str, str]
    classes: Mapping[str, re.Pattern[str]]
    releases: tuple[tuple[str, re.Pattern[str], str], ...]


def is_known(module: str) -> bool:
    """Return whether a top-level module is that of a known package."""
    return has_same_name(module) or has_other_name(module)


def has_same_name(module: str) -> bool:
    """Return whether a module is installed under its own name."""
    return module in _packages().same_name


def has_other_name(module: str) -> bool:
    """Return whether a module is not installed under its own name."""
    return module in _packages().distributions or module in _packages().from_source


def installed_as(module: str) -> str:
    """Return the requirement that installs a module not named like its distribution, "" for any other."""
    return _packages().distributions.get(module, "")


def distribution(module: str) -> str:
    """Return the requirement that installs a module."""
    return installed_as(module) or module.replace("_", "-")


def provider(module: str) -> str:
    """Return what installs a module of a namespace package that several distributions share.

    An example is google.cloud; "" for any other.
    """
    return _packages().namespaces.get(".".join(module.split(".")[:2]), "")


def tree_of(module: str) -> str:
    """Return the repository whose source tree alone has a module (such as megatron.training), else ""."""
    return _packages().trees.get(".".join(module.split(".")[:2]), "")


def extended(name: str) -> str:
    """Return the well-known class that a class extends, as its name states.

    For example, GRPOTrainer for MyGRPOTrainer; "" for none.
    """
    ends = (name[at:] for at in range(1, len(name)) if name[at].isupper())
    return next((end for end in ends if len(end) > _SHORTEST and owner_of(end)), "")


def owner_of(name: str) -> str:
    """Return the package of a well-known class or function; "" for any other."""
    return next((package for package, names in _packages().classes.items() if names.fullmatch(name)), "")


def bounds(name: str, package: str) -> str:
    """Return the bounds of the releases of a package that have a name, such as ">=4.51", or "" if unknown."""
    found = (limits for of, names, limits in _packages().releases if of == package and names.fullmatch(name))
    return next(found, "")


def is_served(package: str) -> bool:
    """Return whether other packages name a file after this one that calls it."""
    return package in _packages().served


def cuda_wheel(library: str) -> str:
    """Return the distribution that contains a library of CUDA's runtime, from CUDA 12 on, or ""."""
    name, found, release = library.partition(".so.")
    major = release.partition(".")[0]
    part = _packages().cuda_wheels.get(name, "") if found and int(major or 0) >= 12 else ""
    return f"nvidia-{part}-cu{major}" if part and major == "12" else f"nvidia-{part}" if part else ""


@cache
def _packages() -> _Packages:
    file = importlib.resources.files("verl_doctor.toolkit") / "data" / "packages_in_logs.toml"
    found = toml.loads(file.read_text("utf-8"))
    return _Packages(
        same_name=frozenset(found["same_name"]),
        from_source=frozenset(found["from_source"]),
        served=frozenset(found["served"]),
        distributions=found["distributions"],
        namespaces=found["namespaces"],
        trees=found["trees"],
        cuda_wheels=found["cuda_wheels"],
        classes={package: re.compile(names) for package, names in found["classes"].items()},
        releases=tuple(
            (entry["package"], re.compile(entry["names"]), entry["bounds"]) for entry in found["release"]
        ),
    )

"""Which releases of a package have a name that another one imports, or no longer have a logged fault.

A logged fault is one that a log shows.

All are data: `toolkit/data/names_by_release.json` and `toolkit/data/members_by_release.json` were read from
released wheels and tagged sources, `toolkit/data/faults_of_releases.toml` names for each fault the thread
that says where it was mended.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.logs.packages import distribution
from verl_doctor.toolkit.logs.python_errors import Raised
from verl_doctor.toolkit.system import toml


@dataclass(frozen=True)
class Fault:
    """A fault of some releases of a package.

    All texts of one of `texts` occur in an exception, and `place` in the path where it was raised.

    `without` are the bounds of the releases that do not have it, as pip takes them; `instead` is what helps
    with the others.
    """

    package: str
    without: str
    texts: tuple[tuple[str, ...], ...]
    place: str = ""
    instead: str = ""
    sources: tuple[str, ...] = ()

    def matches(self, raised: Raised) -> bool:
        """Return whether an exception shows the fault."""
        words = f"{raised.name}: {raised.message}"
        if self.place and not any(self.place in frame.path for frame in raised.frames):
            return False
        return any(all(part in words for part in parts) for parts in self.texts)


def fault_of(raised: Raised) -> Fault | None:
    """Return the known fault of a release that an exception shows; None if there is none."""
    return next((fault for fault in _faults() if fault.matches(raised)), None)


def has_fault(fault: Fault, version: str) -> bool:
    """Return whether a release has a fault; True if its version cannot be read."""
    try:
        return Version(version) not in SpecifierSet(fault.without, prereleases=True)
    except InvalidVersion:
        return True


def instead_of(fault: Fault, installed: str, install: str = "") -> str:
    """Return what to install instead of a release with a fault.

    `installed` is its version, "" if it is unknown; `install` is how, if not with pip.
    """
    install = install or f"pip install '{distribution(fault.package)}{fault.without}'"
    known = (
        f"{fault.package} {installed} has this fault, {fault.without} does not: {install}"
        if installed
        else (
            f"unless the installed {fault.package} is {fault.without} (pip show "
            f"{distribution(fault.package)}), {install}, which does not have this fault"
        )
    )
    return f"{known}, with the job's Python, on every node{f'; or {fault.instead}' if fault.instead else ''}"


def bounds_of(module: str, name: str = "") -> str:
    """Return the bounds of the releases whose module has a name, or that have the module.

    For example, ">=4.51"; "" if unknown.
    """
    package = module.partition(".")[0]
    return _names().get(package, {}).get(module, {}).get(name, "")


def bounds_of_part(prefix: str) -> str:
    """Return the widest lower bound of the modules whose names begin with a prefix, such as ">=4.51".

    "" if none is known.
    """
    modules = _names().get(prefix.partition(".")[0], {})
    found = [names[""] for module, names in modules.items() if module.startswith(prefix) and "" in names]
    lower = [bound for bound in found if bound.startswith(">=") and "," not in bound]
    return min(lower, key=lambda bound: Version(bound[2:]), default="")


def members_of(cls: str, name: str) -> Mapping[str, str]:
    """Return the packages where a class of this name has a member in only some releases, with bounds.

    The bounds are those of these releases.
    """
    return {
        package: classes[cls][name] for package, classes in _members().items() if name in classes.get(cls, {})
    }


def parameters_of(function: str, name: str) -> Mapping[str, str]:
    """Return the packages of which only some releases have a parameter, with their bounds.

    A function, a class or a method of this name takes the parameter.
    """
    found = {
        package: calls[f"{function}()"][name]
        for package, calls in _members().items()
        if name in calls.get(f"{function}()", {})
    }
    return found or members_of(function, name)  # the fields of a dataclass are its parameters


def before(limits: str) -> str:
    """Return the bounds of the releases before those within a lower bound.

    "<0.16" for ">=0.16"; "" for any other bounds.
    """
    return f"<{limits[2:]}" if limits.startswith(">=") and "," not in limits else ""


def owners_of(name: str) -> Iterable[tuple[str, str]]:
    """Yield the packages that have a name in some releases only, each with their bounds."""
    for package, modules in _names().items():
        found = {names[name] for names in modules.values() if name in names}
        if len(found) == 1:
            yield package, found.pop()


@cache
def _faults() -> tuple[Fault, ...]:
    entries: Sequence[Mapping[str, object]] = toml.loads(_read("faults_of_releases.toml"))["fault"]
    return tuple(
        Fault(
            str(entry["package"]),
            str(entry["without"]),
            tuple(tuple(text.split("*")) for text in entry["texts"]),  # type: ignore[attr-defined]
            str(entry.get("place", "")),
            str(entry.get("instead", "")),
            tuple(entry["sources"]),  # type: ignore[arg-type]
        )
        for entry in entries
    )


@cache
def _names() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    read: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(_read("names_by_release.json"))
    return read


@cache
def _members() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    read: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(_read("members_by_release.json"))
    return read


def _read(name: str) -> str:
    return (importlib.resources.files("verl_doctor.toolkit") / "data" / name).read_text("utf-8")

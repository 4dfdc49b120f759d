"""What reads the variables that are set, found in installed packages' sources and compiled files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.collectors.variables.variable_families import FAMILIES, Family, family_of
from verl_doctor.toolkit.collectors.variables.variable_search import (
    Places,
    Search,
    Trace,
    VariableRead,
    alike,
)
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.target import Target

__all__ = ["Reading", "VariableRead", "VariableReaders", "variable_readers"]


@dataclass(frozen=True)
class Reading:
    """One variable, and what reads it: a package, or the launch file itself, which may use it in a command.

    `owner` is the import name of the package or library that the variable belongs to. `setters` are places
    where packages set it themselves. `declared` is its entry in vLLM's table of variables if no code uses
    that entry. `unclear` is why there may be an undetected reader, "" if every file that could hold one was
    searched. `near` is a similar name that is read, looked up if this one is not read.
    """

    name: str
    owner: str = ""
    readers: tuple[VariableRead, ...] = ()
    setters: tuple[VariableRead, ...] = ()
    declared: VariableRead | None = None
    unclear: str = ""
    near: str = ""

    @property
    def dead(self) -> bool:
        """Whether it is certain that nothing reads it."""
        return not self.readers and not self.unclear


@dataclass(frozen=True)
class VariableReaders:
    """The variables of known families that the shell or a launch file sets.

    `folders` are the packages that were searched, by import name. `vllm_warns`: this vLLM warns about unknown
    `VLLM_` variables.
    """

    variables: tuple[Reading, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)
    vllm_warns: bool = False

    def dead(self) -> Iterator[Reading]:
        """Yield the variables that nothing reads."""
        return (reading for reading in self.variables if reading.dead)

    def get(self, name: str) -> Reading | None:
        """Return what is known of one variable."""
        return next((reading for reading in self.variables if reading.name == name), None)


@collector(timeout=60, kept=True)
def variable_readers(
    variables: Variables,
    launch: Launch | Unknown,
    target: Target,
    interpreter: Interpreter | Unknown,
    verl: VerlTrees | Unknown,
    vllm: VllmTree | Unknown,
    listings: Listings,
) -> VariableReaders | Unknown:
    """Search the packages of the target for the variables that are set, and nothing else."""
    settings = () if isinstance(launch, Unknown) else launch.settings
    set_here = {
        *variables.values,
        *variables.withheld,
        *(setting.name for setting in settings if not setting.removed),
    }
    found = readers_of(set_here, target, interpreter, verl, vllm, listings)
    if isinstance(found, Unknown) or isinstance(launch, Unknown):
        return found
    return replace(found, variables=tuple(_with_own_use(reading, launch) for reading in found.variables))


def readers_of(
    variables: Iterable[str],
    target: Target,
    interpreter: Interpreter | Unknown,
    verl: VerlTrees | Unknown,
    vllm: VllmTree | Unknown,
    listings: Listings | None = None,
) -> VariableReaders | Unknown:
    """Search the packages of the target for those of these variables whose family is known."""
    names = tuple(
        sorted(name for name in variables if name.isascii() and name.isidentifier() and family_of(name))
    )
    if not names:
        return VariableReaders()
    families = [family for family in FAMILIES if family in {family_of(name) for name in names}]
    places = _places(families, target, interpreter, verl, vllm)
    files = [path for family in families for _, path in places.compiled(family)]
    about = (names, places, [_state(path) for path in files], sys.version_info[:2])
    folders = sorted(places.folders.values())
    return remembered(VariableReaders, about, folders, partial(_search, names, places), listings)


def _places(
    families: list[Family],
    target: Target,
    interpreter: Interpreter | Unknown,
    verl: VerlTrees | Unknown,
    vllm: VllmTree | Unknown,
) -> Places:
    """Return the locations of packages that may read variables of these families."""
    sites = () if isinstance(interpreter, Unknown) else interpreter.site_packages
    path = () if isinstance(interpreter, Unknown) else (*interpreter.sys_path, *sites)
    named = dict(target.libraries)
    if not isinstance(verl, Unknown):
        named["verl"] = Path(verl.imported.folder)
    if not isinstance(vllm, Unknown):
        named["vllm"] = Path(vllm.tree.folder)
    folders = {}
    for package in sorted({package for family in families for package in family.sources}):
        candidates = [named[package]] if package in named else [Path(entry, package) for entry in path]
        if found := next(filter(os.path.isdir, candidates), None):
            folders[package] = found
    return Places(folders, tuple(map(Path, sites)))


def _state(path: Path) -> tuple[str, int, int]:
    try:
        info = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), info.st_size, info.st_mtime_ns


def _search(names: tuple[str, ...], places: Places) -> VariableReaders | Unknown:
    """Search for the variables, then for related names: the table entries about them and similar names."""
    try:
        first = Search(names, places)
    except TimeoutError:
        return Unknown(
            "the compiled files of the packages could not be read in time; once more may be faster"
        )
    unread = {name: trace for name, trace in first.traces.items() if not trace.readers}
    entries = {entry for trace in unread.values() for entry in trace.entries}
    nearly = {name: _nearly(name, first) for name, trace in unread.items() if not trace.unclear}
    second = Search(
        {*entries, *chain(*nearly.values())} - {*names, *first.compiled}, places, sources_only=True
    )
    traces = {**second.traces, **first.traces}
    return VariableReaders(
        tuple(_reading(name, traces, nearly.get(name, []), first.compiled) for name in names),
        {package: str(folder) for package, folder in places.folders.items()},
        first.vllm_warns,
    )


def _nearly(name: str, search: Search) -> list[str]:
    prefix = family.prefix if (family := family_of(name)) else ""
    compiled = (word for word in search.compiled if word.startswith(prefix))
    return alike(name, {*search.words.get(prefix, ()), *compiled})


def _reading(
    name: str, traces: Mapping[str, Trace], nearly: list[str], compiled: Mapping[str, VariableRead]
) -> Reading:
    trace, family = traces[name], family_of(name)
    owner = family.owner or family.sources[0] if family else ""
    known = Reading(name, owner.rpartition("/")[2].partition(".")[0], setters=tuple(trace.setters))
    if readers := _readers(name, traces):
        return replace(known, readers=tuple(readers))
    near = next((word for word in nearly if word in compiled or _readers(word, traces)), "")
    declared = next(iter(trace.entries.values()), None)
    return replace(known, declared=declared, unclear=next(iter(trace.unclear), ""), near=near)


def _readers(name: str, traces: Mapping[str, Trace]) -> list[VariableRead]:
    """Return what reads a variable itself, or uses a table entry that does."""
    if name not in traces:
        return []
    trace = traces[name]
    through = [reader for entry in trace.entries if entry in traces for reader in traces[entry].readers]
    return trace.readers or through


def _with_own_use(reading: Reading, launch: Launch) -> Reading:
    """Add a launch file's own use of a variable that no package reads: `--port $VLLM_MY_PORT`."""
    if reading.readers:
        return reading
    used = re.compile(rf"\$\{{?{re.escape(reading.name)}\b")
    given = re.compile(rf"\b{re.escape(reading.name)}[=:]")
    for path, _ in launch.files:
        for number, line in enumerate((load_text(path) or "").splitlines(), 1):
            if used.search(line) and not given.search(line) and not line.lstrip().startswith("#"):
                return replace(reading, readers=(VariableRead("", path, number),))
    return reading

"""Searches packages for readers of given variables: Python sources, then compiled files for the rest."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.variables.names_in_files import SourceNames, in_compiled, in_sources
from verl_doctor.toolkit.collectors.variables.variable_families import FAMILIES, Family, family_of
from verl_doctor.toolkit.sources.python.environment import Mention, mentions
from verl_doctor.toolkit.sources.python.source import SourceTree, Unreadable, parse

# vLLM's table of variables. A name in its other lists does not count as read.
_TABLE_FILE = "envs.py"
_WARNING = b"Unknown vLLM environment variable"
_ALIKE = 0.8  # ratio of difflib: VLLM_LOG_LEVEL is like VLLM_LOGGING_LEVEL
_CANDIDATES = 3
# Sets variables for its workers, which matters whatever reads them.
_SETTER = "verl"
# Seconds. A local disk takes about one for each gigabyte.
_COMPILED_LIMIT = 20.0
# Reports on an environment and tests of the package are not what a job runs.
_BESIDE_THE_JOB = frozenset({"collect_env.py", "conftest.py", "test", "tests", "testing"})


@dataclass(frozen=True)
class VariableRead:
    """One place that reads a variable: the package or the compiled file's name, and the line.

    The line is 0 in a compiled file.
    """

    package: str
    path: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True)
class Places:
    """Where packages are: their folders by import name, and the folders that contain packages.

    The latter are searched for compiled files.
    """

    folders: Mapping[str, Path]
    sites: tuple[Path, ...] = ()

    def compiled(self, family: Family) -> Iterator[tuple[str, Path]]:
        """Yield compiled files that may read variables of a family, in search order, with their patterns."""
        for pattern in family.compiled:
            package = pattern.partition("/")[0]
            sites = (self.folders[package].parent,) if package in self.folders else self.sites
            for path in dict.fromkeys(path for site in sites for path in sorted(site.glob(pattern))):
                yield pattern, path


@dataclass
class Trace:
    """The results for one variable: readers, setters, table entries, and why there may be more.

    Readers and setters are what reads and sets the variable; the entries are about it.
    """

    readers: list[VariableRead] = field(default_factory=list)
    setters: list[VariableRead] = field(default_factory=list)
    entries: dict[str, VariableRead] = field(default_factory=dict)
    unclear: list[str] = field(default_factory=list)


class Search:
    """One pass over the packages for the readers of some variables.

    Files are not opened once they are no longer needed.

    `traces` has each of the variables. `words` are all words in sources with a family's prefix, by that
    prefix; `compiled` those in compiled files, which read them. `vllm_warns`: this vLLM warns about unknown
    variables. Raises TimeoutError if reading the compiled files takes too long.
    """

    def __init__(self, names: Iterable[str], places: Places, *, sources_only: bool = False) -> None:
        self.traces = {name: Trace() for name in names}
        self.words: dict[str, set[str]] = {}
        self.compiled: dict[str, VariableRead] = {}
        self.vllm_warns = False
        self._places = places
        for package in dict.fromkeys(package for family in FAMILIES for package in family.sources):
            self._read_sources(package)
        if not sources_only:
            self._read_compiled()
        for family in FAMILIES:
            for name in self._left(family):
                self.traces[name].unclear += self._unseen(name, family)

    def _of(self, family: Family) -> list[str]:
        return [name for name in self.traces if family_of(name) is family]

    def _left(self, family: Family) -> list[str]:
        """Return the variables of a family without a reader so far."""
        return [name for name in self._of(family) if not self.traces[name].readers]

    def _read_sources(self, package: str) -> None:
        folder = self._places.folders.get(package)
        wanted = frozenset(
            name
            for family in FAMILIES
            if package in family.sources
            for name in (self._of(family) if package == _SETTER else self._left(family))
        )
        if folder is None or not wanted:
            return
        prefixes = {family.prefix for name in wanted if (family := family_of(name))}
        for source in in_sources(_files(folder), sorted(prefixes)):
            self.vllm_warns |= package == "vllm" and _WARNING in source.content
            for word in source.words:
                if (family := family_of(word)) is not None:
                    self.words.setdefault(family.prefix, set()).add(word)
            self._take_built(source, wanted)
            if names := wanted & source.words:
                self._take_mentions(package, source, names)

    def _take_built(self, source: SourceNames, wanted: frozenset[str]) -> None:
        """Record names that this source may compose.

        For a bare prefix the other half must occur there, too.
        """
        for begin, end in source.built:
            bare = not end and any(family.prefix == begin for family in FAMILIES)
            for name in wanted:
                half = name[len(begin) :].encode()
                fits = name.startswith(begin) and name.endswith(end) and half
                if fits and (not bare or re.search(rb"[\"']" + half + rb"[\"']", source.content)):
                    self.traces[name].unclear.append(f"{source.path} composes such names")

    def _take_mentions(self, package: str, source: SourceNames, names: frozenset[str]) -> None:
        if source.path.suffix != ".py":
            for name in names:
                if match := re.search(rb"oc\.env:\s*" + name.encode() + rb"\b", source.content):
                    line = source.content.count(b"\n", 0, match.start()) + 1
                    self.traces[name].readers.append(VariableRead(package, str(source.path), line))
            return
        tree = parse(source.content, source.path)
        if isinstance(tree, Unreadable):
            for name in names:
                self.traces[name].unclear.append(tree.reason)
            return
        for mention in mentions(tree, names):
            self._take(mention, VariableRead(package, str(source.path), mention.line), source.path.name)

    def _take(self, mention: Mention, at: VariableRead, file: str) -> None:
        trace = self.traces[mention.name]
        if mention.use == "reads" and all(at.package != reader.package for reader in trace.readers):
            trace.readers.append(at)
        elif mention.use == "tables":
            trace.entries.setdefault(mention.entry, at)
        elif mention.use == "sets" and all(at.package != setter.package for setter in trace.setters):
            trace.setters.append(at)
        elif mention.use == "names" and file != _TABLE_FILE:
            trace.unclear.append(f"{at} names it")

    def _read_compiled(self) -> None:
        """Search each compiled file once, for all families at the same time: it may have a gigabyte."""
        deadline = time.monotonic() + _COMPILED_LIMIT
        wanted: dict[Path, list[Family]] = {}
        for family in FAMILIES:
            for _, path in self._places.compiled(family) if self._left(family) else ():
                wanted.setdefault(path, []).append(family)
        for path, families in wanted.items():
            prefixes = [family.prefix for family in families if self._left(family)]
            for word in in_compiled(path, prefixes, deadline) if prefixes else ():
                reader = self.compiled.setdefault(word, VariableRead(path.name, str(path)))
                if word in self.traces and not self.traces[word].readers:
                    self.traces[word].readers.append(reader)

    def _unseen(self, name: str, family: Family) -> Iterator[str]:
        """Yield why a variable without a reader may have an undetected one."""
        owner = family.owner
        if not owner:
            yield f"any library may read {family.prefix} variables"
        elif owner in family.compiled:
            if all(pattern != owner for pattern, _ in self._places.compiled(family)):
                yield f"no {owner.rpartition('/')[2].rstrip('*')} was found in this environment"
        elif owner not in self._places.folders:
            yield f"{owner} was not found in this environment"
        if name.startswith(family.built):
            yield f"names that begin with {' or '.join(family.built)} are composed when they are read"


def alike(name: str, words: Iterable[str]) -> list[str]:
    """Return the words most similar to a name, the nearest first."""
    others = [word for word in words if word != name and not word.endswith("_")]
    return difflib.get_close_matches(name, others, _CANDIDATES, _ALIKE)


def _files(folder: Path) -> Iterator[Path]:
    """Yield a package's Python sources, and verl's YAML files, which may read variables with `oc.env`."""
    for path in SourceTree(folder, folder.name).files():
        if _BESIDE_THE_JOB.isdisjoint(path.relative_to(folder).parts):
            yield path
    if folder.name == "verl":
        yield from sorted(folder.rglob("*.yaml"))

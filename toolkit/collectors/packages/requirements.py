"""What verl and vLLM require, directly and through others, and which of it the target lacks.

Judged from metadata, like `pip check`, but limited to verl's job, and for the target's interpreter. One
requirement that metadata omit is read from the package itself.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import packaging
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from verl_doctor.toolkit.collectors.installed.packages import (
    VLLM_NAMES,
    Distribution,
    Packages,
    names_of,
)
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import read
from verl_doctor.toolkit.text import canonical

# Avoids parsing the many requirements of extras that were not requested.
_NAMES_EXTRA = re.compile(r";.*\bextra\b")
# pyarrow compares NumPy's version when it is imported, and requires none in its metadata (26.0.1).
_OLDEST_NUMPY = re.compile(rb"""np\.__version__\.partition\(['"]\.['"]\)\[0\]\) < (\d+)""")


@dataclass(frozen=True)
class Unmet:
    """One requirement that is not met.

    `by` and `by_version` identify the package that requires it, `name` is canonical, `wanted` the version
    specifier as written (empty: any), `there` the installed version (empty: it is missing). `extra` is the
    extra of verl that requires it, else empty. Requested extras are not recorded, so every extra named like
    an installed package is read.
    """

    by: str
    by_version: str
    name: str
    wanted: str
    there: str
    extra: str = ""


@dataclass(frozen=True)
class Requirements:
    """The closure of verl's and vLLM's requirements: the installed names, and what is not met.

    `unreadable` describes requirements that are not valid PEP 508 or compare with an invalid version, and
    metadata that names no package.
    """

    roots: tuple[str, ...]
    closure: tuple[str, ...]
    unmet: tuple[Unmet, ...] = ()
    unreadable: tuple[str, ...] = ()


@collector(timeout=10, kept=True)
def requirements(packages: Packages) -> Requirements | Unknown:
    """Walk the requirements of the installed packages, starting from verl and vLLM."""
    roots = [
        root for root in (packages.get("verl"), packages.get(*VLLM_NAMES)) if isinstance(root, Distribution)
    ]
    if not roots:
        return Absent("neither verl nor vLLM is installed here with metadata that lists its requirements")
    about = (packages, packaging.__version__)
    return remembered(Requirements, about, (), lambda: _Walk(packages, roots).result())


class _Walk:
    """One breadth-first walk over (distribution, extra) pairs."""

    def __init__(self, packages: Packages, roots: list[Distribution]) -> None:
        self._by_name = {distribution.name: distribution for distribution in packages.distributions}
        if (vllm := packages.get(*VLLM_NAMES)) is not None:
            self._by_name["vllm"] = vllm
        self._markers = dict(packages.markers or {})
        self._roots = roots
        self._nameless = packages.unreadable
        self._unmet: dict[Unmet, None] = {}
        self._unreadable: dict[str, None] = {}
        self._seen: dict[str, None] = {}

    def result(self) -> Requirements:
        for root in self._roots:
            self._visit(root)
        installed = names_of(self._by_name.values())
        if (verl := self._by_name.get("verl")) is not None:
            for extra in sorted(set(verl.extras)):
                if canonical(extra) in installed:
                    self._direct(verl, extra)
        self._read_pyarrow()
        return Requirements(
            roots=tuple(root.name for root in self._roots),
            closure=tuple(sorted(self._seen)),
            unmet=tuple(self._unmet),
            unreadable=(*self._unreadable, *(f"{path} names no package" for path in self._nameless)),
        )

    def _visit(self, root: Distribution) -> None:
        waiting = deque([(root, "")])
        done: set[tuple[str, str]] = set()
        while waiting:
            owner, extra = waiting.popleft()
            if (owner.name, extra) in done:
                continue
            done.add((owner.name, extra))
            self._seen[owner.name] = None
            if not owner.readable:
                self._unreadable[f"{owner.name}: the requirements in {owner.location} cannot be read"] = None
            for requirement in self._of(owner, extra):
                if (installed := self._judge(owner, requirement, "")) is not None:
                    waiting.extend((installed, wanted) for wanted in ("", *sorted(requirement.extras)))

    def _direct(self, verl: Distribution, named: str) -> None:
        """Judge an extra's requirements and the extras of verl that it consists of, not dependencies."""
        waiting, done = deque([named]), set()
        while waiting:
            extra = waiting.popleft()
            if extra in done:
                continue
            done.add(extra)
            for requirement in self._of(verl, extra):
                if canonical(requirement.name) == verl.name:
                    waiting.extend(sorted(requirement.extras))
                else:
                    self._judge(verl, requirement, named)

    def _read_pyarrow(self) -> None:
        """Record that the installed NumPy requires an older pyarrow, if pyarrow's code refuses that NumPy."""
        pyarrow, numpy = self._by_name.get("pyarrow"), self._by_name.get("numpy")
        if pyarrow is None or numpy is None or pyarrow.name not in self._seen:
            return
        source = read(Path(pyarrow.location).parent / "pyarrow" / "lib.pyx")
        oldest = _OLDEST_NUMPY.search(source) if isinstance(source, bytes) else None
        if oldest is not None and meets(SpecifierSet(f"<{int(oldest[1])}"), numpy.version):
            release = pyarrow.version.partition(".")[0]
            self._unmet[Unmet(numpy.name, numpy.version, pyarrow.name, f"<{release}", pyarrow.version)] = None

    def _of(self, owner: Distribution, extra: str) -> Iterator[Requirement]:
        """Yield the requirements that apply on this target; with an extra, only those that it adds."""
        for text in owner.requires:
            if bool(_NAMES_EXTRA.search(text)) is not bool(extra):
                continue
            requirement = parsed(text)
            if requirement is None:
                self._unreadable[f"{owner.name}: {text[:200]}"] = None
            elif applies(requirement, {**self._markers, "extra": extra}):
                yield requirement

    def _judge(self, owner: Distribution, requirement: Requirement, extra: str) -> Distribution | None:
        """Record a requirement that is not met. Return the installed distribution of that name."""
        name = canonical(requirement.name)
        installed = self._by_name.get(name)
        version = "" if installed is None else installed.version
        met = installed is not None and meets(requirement.specifier, version)
        if met is None:
            self._unreadable[f"{owner.name}: {requirement} cannot be compared with {version[:80]!r}"] = None
            return installed
        if not met:
            wanted = str(requirement.specifier)
            self._unmet[Unmet(owner.name, owner.version, name, wanted, version, extra)] = None
        return installed


@lru_cache(maxsize=8192)
def parsed(text: str) -> Requirement | None:
    """Parse a requirement, None if it is not valid PEP 508."""
    try:
        return Requirement(text)
    except (InvalidRequirement, ValueError, RecursionError):
        return None


def meets(specifier: SpecifierSet, version: str) -> bool | None:
    """Return whether the version meets the specifier, or None if the two cannot be compared."""
    try:
        return not specifier or specifier.contains(_version(version), prereleases=True)
    except ValueError:  # not a PEP 440 version, or numbers that are too large
        return None


@lru_cache(maxsize=2048)
def _version(text: str) -> Version:
    return Version(text)


def applies(requirement: Requirement, markers: Mapping[str, str]) -> bool:
    """Return whether a requirement's marker holds in this environment."""
    if requirement.marker is None:
        return True
    try:
        return requirement.marker.evaluate(dict(markers))
    except Exception:  # noqa: BLE001 - a marker that cannot be evaluated requires nothing
        return False

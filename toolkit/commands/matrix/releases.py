"""Which releases of a project a table covers, and which wheel of each is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.packages.wheels import platforms_of
from verl_doctor.toolkit.index.page import WheelFile
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import listed

SHOWN = 12
"""How many releases a table has by default. vLLM brings out a minor release every two weeks."""

_OPERATOR = re.compile(r"[<>=!~]")


@dataclass(frozen=True)
class Release:
    """One release of a project and the wheel to read: the one for this target, if there is one.

    The Python sources are the same in all of them. `obstacle` is why an installer would accept none of them
    here.
    """

    project: str
    version: Version
    wheel: WheelFile
    obstacle: str = ""

    @property
    def minor(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        return self.version.major, self.version.minor


def releases(project: str, wheels: Iterable[WheelFile], interpreter: Interpreter | None) -> list[Release]:
    """Return all releases with a wheel, the oldest first, without yanked ones."""
    found = []
    offered = sorted((wheel for wheel in wheels if not wheel.yanked), key=lambda wheel: wheel.version)
    for version, group in groupby(offered, key=lambda wheel: wheel.version):
        builds = sorted(group, key=lambda wheel: wheel.build, reverse=True)
        judged = [(_obstacle(wheel, interpreter), wheel) for wheel in builds]
        obstacle, wheel = min(judged, key=lambda entry: (bool(entry[0]), len(entry[0])))
        found.append(Release(project, version, wheel, obstacle))
    return found


def newest_patches(found: Iterable[Release]) -> list[Release]:
    """Return the newest patch of each minor release; a pre-release only if there is nothing else."""
    chosen = []
    for _, group in groupby(found, key=lambda release: release.minor):
        patches = list(group)
        chosen.append(([patch for patch in patches if not patch.version.is_prerelease] or patches)[-1])
    return chosen


def by_default(found: list[Release], pins: SpecifierSet | None, also: Iterable[str]) -> list[Release]:
    """Choose from the minor before the oldest one that the pins admit; without pins, the newest ones.

    `also` are versions that are always included, such as the installed one.
    """
    minors = [release for release in newest_patches(found) if not release.version.is_prerelease]
    first = max(0, len(minors) - SHOWN)
    if pins is not None:
        admitted = [n for n, minor in enumerate(minors) if _admits(pins, found, minor)]
        if admitted:
            floor = admitted[0] if _has_floor(pins) else max(admitted[0], admitted[-1] - 2)
            first = min(first, max(0, floor - 1))
    wanted = set(also)
    extra = [release for release in found if str(release.version) in wanted]
    return sorted({*minors[first : first + SHOWN], *extra}, key=lambda release: release.version)


def named(found: list[Release], text: str, *, patches: bool) -> list[Release]:
    """Choose what the user names: versions ("0.11.0"), minors ("0.12"), or a range (">=0.10,<0.13").

    Raises UsageError.

    For a minor release the newest patch is chosen; for a range with `patches` every one.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--releases names no release; for instance 0.11.0,0.12.0 or '>=0.10,<0.13'")
    if any(_OPERATOR.match(word) for word in words):
        return _in_range(found, text, patches=patches)
    return sorted({_release_of(found, word) for word in words}, key=lambda release: release.version)


def release_of(found: Sequence[Release], version: str) -> Release:
    """Return the release of this version. Raises UsageError."""
    return _release_of(list(found), version)


def _release_of(found: list[Release], word: str) -> Release:
    try:
        version = Version(word)
    except InvalidVersion:
        raise UsageError(f"{word!r} is not a version; for instance 0.12.0") from None
    if len(version.release) < 3:
        minor = (version.major, version.minor)
        exact = [release for release in newest_patches(found) if release.minor == minor]
    else:
        exact = [release for release in found if release.version == version]
    if not exact:
        raise UsageError(_not_there(found, f"no wheel of version {word}"))
    return exact[0]


def _in_range(found: list[Release], text: str, *, patches: bool) -> list[Release]:
    try:
        wanted = SpecifierSet(text)
    except InvalidSpecifier:
        raise UsageError(
            f"--releases {text!r} is not a range of versions; for instance '>=0.10,<0.13'"
        ) from None
    early = bool(wanted.prereleases)
    inside = [release for release in found if wanted.contains(release.version, prereleases=early)]
    if not inside:
        raise UsageError(_not_there(found, f"no wheel in {text}"))
    return inside if patches else newest_patches(inside)


def _not_there(found: list[Release], what: str) -> str:
    if not found:
        return f"{what}: the index has no wheel of this project"
    newest = [str(release.version) for release in reversed(newest_patches(found))]
    return f"the index has {what} of {found[0].project}; the newest are {listed(newest, 5)}"


def _admits(pins: SpecifierSet, found: list[Release], minor: Release) -> bool:
    patches = (release.version for release in found if release.minor == minor.minor)
    return any(pins.contains(version, prereleases=False) for version in patches)


def _has_floor(pins: SpecifierSet) -> bool:
    return any(pin.operator in {">", ">=", "==", "~=", "==="} for pin in pins)


def _obstacle(wheel: WheelFile, interpreter: Interpreter | None) -> str:
    """Return why this wheel cannot be installed for the interpreter, empty if it can."""
    if interpreter is None:
        return ""
    if not wheel.for_python(interpreter.version):
        return f"needs Python {wheel.requires_python}, installed is {interpreter.version}"
    ours = [int(part) for part in interpreter.version.split(".")[:2]]
    if not any(_runs_on(tag.interpreter, tag.abi, ours) for tag in wheel.tags):
        pythons = sorted({tag.interpreter for tag in wheel.tags})
        return f"is built for {listed(pythons, 3)}, not Python {interpreter.version}"
    platforms = list(platforms_of(f"-{tag.platform}" for tag in wheel.tags))
    here = tuple(int(part) for part in interpreter.glibc.split(".")[:2] if part.isdecimal())
    if not platforms or any(arch == interpreter.machine and needs <= here for needs, arch in platforms):
        return ""
    same = [needs for needs, arch in platforms if arch == interpreter.machine]
    if not same:
        return (
            f"is built for {listed(sorted({arch for _, arch in platforms}), 3)}, this machine is "
            f"{interpreter.machine}"
        )
    return (
        f"needs glibc {'.'.join(map(str, min(same)))}, this machine has "
        f"{interpreter.glibc or 'another C library'}"
    )


def _runs_on(interpreter: str, abi: str, ours: list[int]) -> bool:
    """Return whether the first two parts of a wheel's tag fit CPython of this version (PEP 425)."""
    match = re.fullmatch(r"(py|cp)(\d)(\d*)", interpreter)
    if match is None:
        return False
    theirs = [int(match[2]), int(match[3] or 0)]
    if match[1] == "py" or abi == "abi3":
        return theirs[0] == ours[0] and theirs <= ours
    return theirs == ours

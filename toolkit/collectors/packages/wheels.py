"""What the installed compiled packages were built for.

This is read from the tags of their wheels and the names of their modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.index.records import look

_RECORD_LIMIT = 64 * 1024 * 1024
_TAG = re.compile(rb"^Tag:\s*([\w.]+-[\w.]+-[\w.]+)\s*$", re.MULTILINE)
# PEP 3149: foo.cpython-311-x86_64-linux-gnu.so; a stable-ABI module (foo.abi3.so) names no interpreter.
_MODULE = re.compile(rb"\.(cpython-\d+[a-z]*)-\w+-linux-\w+\.so,")

# PEP 600: manylinux_X_Y_ARCH; the older names stand for these versions of glibc.
_OLD_NAMES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_PLATFORM = re.compile(
    r"(manylinux_(?P<major>\d{1,4})_(?P<minor>\d{1,4})|(?P<old>manylinux\d{1,4})|linux)_(?P<arch>\w+)"
)


@dataclass(frozen=True)
class Wheel:
    """One installed wheel that is not pure Python.

    `tags` are the compatibility tags that it was installed by (PEP 425). `built_for` are the interpreters in
    the names of its extension modules ("cpython-311"), which Python itself checks; empty for modules of the
    stable ABI.
    """

    name: str
    version: str
    tags: tuple[str, ...]
    built_for: tuple[str, ...]
    location: str


@dataclass(frozen=True)
class Wheels:
    """All installed wheels that are not pure Python."""

    wheels: tuple[Wheel, ...]


@collector(timeout=10, kept=True)
def wheels(packages: Packages) -> Wheels:
    """Read WHEEL, and RECORD if WHEEL does not mark the package as pure Python."""
    found = (_wheel(distribution) for distribution in packages.distributions)
    return Wheels(tuple(wheel for wheel in found if wheel is not None))


def platforms_of(tags: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the minimum glibc and the processor of each Linux platform in the tags."""
    for platform in (part for tag in tags for part in tag.rpartition("-")[2].split(".")):
        if match := _PLATFORM.fullmatch(platform):
            if match["major"]:
                yield (int(match["major"]), int(match["minor"])), match["arch"]
            else:
                yield _OLD_NAMES.get(match["old"] or "", (0, 0)), match["arch"]


def _wheel(distribution: Distribution) -> Wheel | None:
    tags = _TAG.findall(_read(distribution, "WHEEL"))
    if all(tag.endswith(b"-none-any") for tag in tags):
        return None
    modules = _MODULE.findall(_read(distribution, "RECORD"))
    return Wheel(
        distribution.name,
        distribution.version,
        tuple(tag.decode() for tag in tags),
        tuple(sorted({interpreter.decode() for interpreter in modules})),
        distribution.location,
    )


def _read(distribution: Distribution, name: str) -> bytes:
    path = f"{distribution.location}/{name}"
    if look(path) is None:  # reading a pipe would block
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(_RECORD_LIMIT)
    except (OSError, ValueError):
        return b""

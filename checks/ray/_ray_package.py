"""Shared by the rule about the package that Ray uploads and its fix: which parts can be left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.ray.package import PackagePart, RayPackage

_BETWEEN = re.compile(r"[\s,;='\"\[\]{}()]+")
# Characters with a special meaning in .gitignore patterns.
_SPECIAL = re.compile(r"[*?\[\]\\!#\n]|\s$")


def can_stay(package: RayPackage, launch: Launch) -> tuple[PackagePart, ...]:
    """The largest parts, none named by the job, to leave out so that the rest fits; () if not enough."""
    too_much = package.size - package.limit
    chosen: list[PackagePart] = []
    for part in package.parts:
        if too_much < 0:
            break
        if not _SPECIAL.search(part.name) and not _is_named(part, launch):
            chosen.append(part)
            too_much -= part.size
    return tuple(chosen) if too_much < 0 and package.whole else ()


def patterns(parts: Iterable[PackagePart]) -> tuple[str, ...]:
    """The patterns for Ray's `excludes`, as in .gitignore: a leading slash anchors them to the folder."""
    return tuple(f"/{part.name}" for part in parts)


def _is_named(part: PackagePart, launch: Launch) -> bool:
    """Whether a word of the job names the part, something inside it, or a folder that contains it."""
    name = part.name.rstrip("/")
    words = launch.command.words if launch.command is not None else ()
    return any(
        path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/") for path in _paths(words)
    )


def _paths(words: Iterable[Word]) -> Iterator[str]:
    for word in words:
        for path in _BETWEEN.split(word.text or word.written):
            yield path.removeprefix("./").rstrip("/")

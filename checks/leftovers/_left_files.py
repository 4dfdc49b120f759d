"""Shared by the rules about files of ended jobs: which sizes matter, and phrases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from verl_doctor.toolkit.leftover import Kind, Leftover, RemovePath, Store
from verl_doctor.toolkit.rule import Severity
from verl_doctor.toolkit.text import in_bytes, listed

GIB = 1024**3
_LARGE_PART = 0.1  # of the space that would be free without them
_SHOWN = 3


def file(kind: Kind, name: str, size: int) -> Leftover:
    """A leftover of an example."""
    store: Store = "shared memory" if kind == "shared memory" else "disk"
    proof = ("no process has it open or names it", "it was last changed 3 hours ago")
    return Leftover(kind, name, proof, RemovePath(name, 1, 2, 3), size, store, 10_800.0)


def held(leftovers: Iterable[Leftover]) -> int:
    """The total size in bytes."""
    return sum(leftover.size or 0 for leftover in leftovers)


def severity(taken: int, free: int | None) -> Severity:
    """A warning if the leftovers take space that matters, a hint otherwise. `free` is None if unknown."""
    return "warning" if free is not None and taken > _LARGE_PART * (free + taken) else "info"


def named(leftovers: Iterable[Leftover]) -> str:
    """The largest ones, with their sizes."""
    ordered = sorted(leftovers, key=lambda leftover: -(leftover.size or 0))
    return listed((f"{leftover.name} ({in_bytes(leftover.size or 0)})" for leftover in ordered), _SHOWN)


def parents(leftovers: Iterable[Leftover]) -> str:
    """The folders that contain them; their own names differ each time."""
    return ", ".join(sorted({str(PurePath(leftover.name).parent) for leftover in leftovers}))


def proven(leftovers: Iterable[Leftover]) -> str:
    """The proof that the largest one is unused."""
    return "; ".join(max(leftovers, key=lambda leftover: leftover.size or 0).proof)

"""Leftovers of finished or dead jobs: each with the proof that it is unused, and how to remove it.

A fact that finds leftovers is a named subclass of `Leftovers`; `verl-doctor clean` collects every such fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "session folder",
    "spill folder",
    "temporary folder",
    "shared memory",
    "socket",
    "address file",
    "process",
    "actor",
    "placement group",
]
Store = Literal["disk", "shared memory", "memory", "GPU memory", "resources"]


@dataclass(frozen=True)
class RemovePath:
    """The removal of a file or folder if it is unchanged: same device, inode and change time.

    A folder is removed with its contents.
    """

    path: str
    device: int
    inode: int
    changed: int  # nanoseconds since the epoch


@dataclass(frozen=True)
class EndProcess:
    """End one process, if the process that now has its number started at the same time.

    `ticks` is when it started, in clock ticks since boot: field 22 of /proc/PID/stat.
    """

    pid: int
    ticks: int


@dataclass(frozen=True)
class KillActor:
    """Have one Ray cluster end one actor.

    `address` is the address of its GCS, `session` the cluster's own name.

    `python` is an interpreter with the cluster's version of Ray, `token` the file with the token that it
    requires, "" when it requires none.
    """

    address: str
    session: str
    actor: str
    python: str
    token: str = ""


@dataclass(frozen=True)
class RemoveGroup:
    """Have one Ray cluster remove one placement group. The other fields are as in `KillActor`."""

    address: str
    session: str
    group: str
    python: str
    token: str = ""


Removal = RemovePath | EndProcess | KillActor | RemoveGroup


@dataclass(frozen=True)
class Leftover:
    """Something unused. `proof` lists the observations that show it, each a short clause.

    `size` is in bytes of what `store` names, `age` in seconds since it was last changed or its job ended;
    None when unknown.
    """

    kind: Kind
    name: str
    proof: tuple[str, ...]
    removal: Removal
    size: int | None = None
    store: Store = "disk"
    age: float | None = None


@dataclass(frozen=True)
class Kept:
    """Something that looks like a leftover but is not proven to be one, or is not this user's to remove."""

    kind: Kind
    name: str
    why: str
    size: int | None = None
    store: Store = "disk"


@dataclass(frozen=True)
class Leftovers:
    """What one collector found of some kinds: what can be removed, and what is kept."""

    found: tuple[Leftover, ...] = ()
    kept: tuple[Kept, ...] = ()

    def of(self, *kinds: Kind) -> tuple[Leftover, ...]:
        """Return the leftovers of these kinds."""
        return tuple(leftover for leftover in self.found if leftover.kind in kinds)


@dataclass(frozen=True)
class Outcome:
    """The result of removing a leftover. `why` explains one that still exists, wholly or in part."""

    leftover: Leftover
    state: Literal["removed", "kept", "partly removed", "not removed"]
    why: str = ""

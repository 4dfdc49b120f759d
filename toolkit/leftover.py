"""What finished or dead jobs leave behind: the thing, the proof that it is unused, and how to remove it.

A fact that finds leftovers is a `Leftovers` of its own name; `verl-doctor clean` asks for every such fact there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "session folder",
    "spill folder",
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
    """Remove a file, or a folder with all that is in it, if it is still the very one: same device, inode and change time."""

    path: str
    device: int
    inode: int
    changed: int  # nanoseconds since the epoch


@dataclass(frozen=True)
class EndProcess:
    """End one process, if the one that now has the number started when that one did.

    `ticks` is when it started, in clock ticks since the machine did: field 22 of /proc/PID/stat.
    """

    pid: int
    ticks: int


@dataclass(frozen=True)
class KillActor:
    """Have one Ray cluster end one actor. `address` is that of its GCS, `session` the cluster's name for itself.

    `python` is an interpreter with the cluster's version of Ray, `token` the file with the token that it wants to see, "" when
    it wants none.
    """

    address: str
    session: str
    actor: str
    python: str
    token: str = ""


@dataclass(frozen=True)
class RemoveGroup:
    """Have one Ray cluster take one placement group back. The other fields are as of `KillActor`."""

    address: str
    session: str
    group: str
    python: str
    token: str = ""


Removal = RemovePath | EndProcess | KillActor | RemoveGroup


@dataclass(frozen=True)
class Leftover:
    """Something that nobody needs any more. `proof` are the observations that show it, each a short clause.

    `size` is in bytes of what `store` names, `age` in seconds since it was last changed or its job ended; None when it
    could not be told.
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
    """Something that looks like a leftover and is not proven to be one, or that is not this user's to remove."""

    kind: Kind
    name: str
    why: str
    size: int | None = None
    store: Store = "disk"


@dataclass(frozen=True)
class Leftovers:
    """What one collector found of some kinds: what can go, and what is kept."""

    found: tuple[Leftover, ...] = ()
    kept: tuple[Kept, ...] = ()

    def of(self, *kinds: Kind) -> tuple[Leftover, ...]:
        """The leftovers of these kinds."""
        return tuple(leftover for leftover in self.found if leftover.kind in kinds)


@dataclass(frozen=True)
class Outcome:
    """What became of a leftover that was to be removed. `why` is for one that is still there, wholly or in part."""

    leftover: Leftover
    state: Literal["removed", "kept", "partly removed", "not removed"]
    why: str = ""

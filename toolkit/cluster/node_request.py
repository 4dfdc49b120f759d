"""Which other nodes the user asks about, and how they are reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Via = Literal["ssh", "srun"]

VIA: tuple[Via, ...] = get_args(Via)

BUDGET = 60.0
"""Seconds for all nodes together, unless the user says otherwise."""


@dataclass(frozen=True)
class AskedNodes:
    """These `hosts`, reached by `via`; without any, the nodes of the Ray cluster.

    `budget` is in seconds, from the first question until the last answer counts.
    """

    hosts: tuple[str, ...] = ()
    via: Via = "ssh"
    budget: float = BUDGET


@dataclass(frozen=True)
class Sharing:
    """What nodes use together, for instance a file system, by Ray's number of the node or by host: `most` of them at a time."""

    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most: int = 1


ALONE = Sharing()
"""They share nothing that matters."""


class CouldNotAsk(Exception):  # noqa: N818 - it is what happened, and no defect
    """No node at all could be asked, and why: one sentence with the next step. Exit code 3."""

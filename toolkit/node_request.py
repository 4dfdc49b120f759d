"""Which other nodes the user asks about, and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass
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


class CouldNotAsk(Exception):  # noqa: N818 - it is what happened, and no defect
    """No node at all could be asked, and why: one sentence with the next step. Exit code 3."""

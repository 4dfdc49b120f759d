"""Which other nodes the user asks about, and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Via = Literal["ssh", "srun"]

BUDGET = 60.0
"""Seconds for all nodes together, unless the user says otherwise."""


@dataclass(frozen=True)
class Nodes:
    """These `hosts`, reached by `via`; without any, the nodes of the Ray cluster.

    `budget` is in seconds, from the first question until the last answer counts.
    """

    hosts: tuple[str, ...] = ()
    via: Via = "ssh"
    budget: float = BUDGET

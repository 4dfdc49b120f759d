"""The other nodes that the user requested, and how to reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from verl_doctor.toolkit.system.node_names import fold

Via = Literal["ssh", "srun"]

VIA: tuple[Via, ...] = get_args(Via)

BUDGET = 60.0
"""Seconds for all nodes together, unless the user sets another budget."""


@dataclass(frozen=True)
class RequestedNodes:
    """These `hosts`, reached by `via`; without hosts, the nodes of the Ray cluster.

    `budget` is in seconds, from the first query until the last response counts.
    """

    hosts: tuple[str, ...] = ()
    via: Via = "ssh"
    budget: float = BUDGET

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options with which another command reaches the same nodes, without those that are defaults."""
        hosts = ("--nodes", fold(self.hosts)) if self.hosts else ("--cluster",)
        via = ("--via", self.via) if self.hosts and self.via != VIA[0] else ()
        budget = ("--budget", f"{self.budget:g}s") if self.budget != BUDGET else ()
        return (*hosts, *via, *budget)


@dataclass(frozen=True)
class Sharing:
    """What nodes share, for example a file system, by Ray's number of the node or by host.

    At most `most` of them are queried at a time.
    """

    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most: int = 1


ALONE = Sharing()
"""The nodes share nothing that matters."""


class CouldNotQuery(Exception):  # noqa: N818 - it is what happened, and no defect
    """No node could be queried. The message is one sentence with the next step; the exit code is 3."""

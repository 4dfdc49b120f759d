"""`undo` for many nodes: one node of each environment undoes its repairs.

The journal of a repair is on the node that made it, or next to the environment. The doctor's code is sent
there again.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.node_parcel import undo_parcel
from verl_doctor.toolkit.cluster.node_program import UNDONE
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.repair import LONGEST, Environments, environments
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Watch
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.system.node_names import fold
from verl_doctor.toolkit.target import Options


@dataclass(frozen=True)
class Others:
    """How to reach the nodes, and which environments they have."""

    way: Way
    run: Session
    seen: Collection
    found: Environments


@dataclass(frozen=True)
class UndoOutcome:
    """Lines about what was undone, why something was not, and the nodes for which that is unknown."""

    lines: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def others(nodes: RequestedNodes, options: Options, watch: Watch) -> Others:
    """Find the environments without changing anything. Raises CouldNotQuery if there is no node to query."""
    run = open_session(options)
    seen = run.look()
    way = transport.way_to(nodes, run, seen)
    announce(way.description)
    found = environments(way, run, seen, watch)
    announce(found.sentence())
    return Others(way, run, seen, found)


def undo_runs(others: Others, *, everything: bool, watch: Watch) -> UndoOutcome:
    """Let the first node of each environment except this machine's undo the last repair, or `everything`."""
    lines, refused = [], []
    unknown = [
        (
            f"nothing is undone on {fold(response.node for response in others.found.unknown)}: the location "
            "of its environment is unknown"
        )
    ] * bool(others.found.unknown)
    first = [nodes[0] for nodes in others.found.others]
    parcel = undo_parcel(others.run, others.seen, everything=everything)
    if not first:
        return UndoOutcome(unknown=tuple(unknown))
    with contextlib.closing(others.way.query(parcel, first, watch, LONGEST)) as responses:
        for response in responses:
            if response.missing or UNDONE not in response.facts:
                unknown.append(
                    f"{response.node} may not have undone it: {response.missing or 'it did not report'}"
                )
                continue
            outcome = json.loads(response.facts[UNDONE])
            lines += [f"{response.node}: {line}" for line in outcome["lines"]]
            refused += [f"{response.node}: {why}" for why in outcome["refused"]]
    return UndoOutcome(tuple(lines), tuple(refused), tuple(unknown))

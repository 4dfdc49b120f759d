"""`undo` for many nodes: in each environment its repairs are undone, by one node that sees its files.

The journal of a repair lies on the node that made it, or next to the environment; the doctor's own code is sent there again.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.node_parcel import undo_parcel
from verl_doctor.toolkit.cluster.node_program import UNDONE
from verl_doctor.toolkit.cluster.node_request import AskedNodes
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
    """How the nodes are reached, and which environments they have."""

    way: Way
    run: Session
    seen: Collection
    found: Environments


@dataclass(frozen=True)
class Told:
    """What is undone, line by line; why something is not; and the nodes for which that is unknown."""

    lines: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()


def others(nodes: AskedNodes, options: Options, watch: Watch) -> Others:
    """Find the environments. Nothing is changed. Raises CouldNotAsk when there is no node to query."""
    run = open_session(options)
    seen = run.look()
    way = transport.way_to(nodes, run, seen)
    announce(way.says)
    found = environments(way, run, seen, watch)
    announce(found.sentence())
    return Others(way, run, seen, found)


def take_back(there: Others, *, everything: bool, watch: Watch) -> Told:
    """Have the first node of each environment that is not this machine's undo the last repair, or `everything`."""
    lines, refused = [], []
    unheard = [f"nothing is undone on {fold(answer.node for answer in there.found.untold)}: where its environment lies is not known"] * bool(there.found.untold)  # fmt: skip
    first = [nodes[0] for nodes in there.found.others]
    parcel = undo_parcel(there.run, there.seen, everything=everything)
    if not first:
        return Told(unheard=tuple(unheard))
    with contextlib.closing(there.way.ask(parcel, first, watch, LONGEST)) as answers:
        for answer in answers:
            if answer.missing or UNDONE not in answer.facts:
                unheard.append(
                    f"{answer.node} may not have undone it: {answer.missing or 'it did not report'}"
                )
                continue
            outcome = json.loads(answer.facts[UNDONE])
            lines += [f"{answer.node}: {line}" for line in outcome["lines"]]
            refused += [f"{answer.node}: {why}" for why in outcome["refused"]]
    return Told(tuple(lines), tuple(refused), tuple(unheard))

"""`fix` for many nodes: each environment is repaired once, even if shared; one node first, then the rest.

This machine is the first node. Other environments are repaired on their nodes by the doctor's code, which is
sent there, with the journal on that node. In the end all nodes are examined again.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.examination import ReachedNodes, about_nodes
from verl_doctor.toolkit.cluster.node_parcel import place_parcel, repair_parcel
from verl_doctor.toolkit.cluster.node_program import REPAIRS
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.transport import Way
from verl_doctor.toolkit.collectors.installed.environment_place import EnvironmentPlace
from verl_doctor.toolkit.console.progress import announce
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Request, Watch, examine
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Repair, Report, with_repairs
from verl_doctor.toolkit.system.node_names import fold
from verl_doctor.toolkit.text import counted

LONGEST = 300.0
"""Seconds for the repairs of one environment, each of which is followed by an examination."""
_FAILED = frozenset({"still failing", "made worse, undone", "refused"})


@dataclass(frozen=True)
class Environments:
    """The cluster's environments, each with the nodes that share it: this machine's, and those of others.

    `unknown` are nodes whose environment is unknown; they are not touched.
    """

    here: tuple[NodeResponse, ...]
    others: tuple[tuple[NodeResponse, ...], ...]
    shared: frozenset[str]
    unknown: tuple[NodeResponse, ...]

    def sentence(self) -> str:
        """Describe how many environments there are, and where."""
        sentence = f"the environment exists in {counted(1 + len(self.others), 'place')}: here"
        if self.here:
            sentence += f" for {fold(node.node for node in self.here)}"
        sentence += "".join(f", on {fold(node.node for node in nodes)}" for nodes in self.others)
        return sentence + (f"; unknown on {fold(node.node for node in self.unknown)}" if self.unknown else "")


def environments(way: Way, run: Session, collection: Collection, watch: Watch) -> Environments:
    """Query every node for the location of its environment."""
    here = collection.get(EnvironmentPlace)
    mine = "" if isinstance(here, Unknown) else here.files
    groups: dict[str, list[NodeResponse]] = {mine: []}
    shared, unknown = set(), []
    with contextlib.closing(way.query(place_parcel(run, collection), watch=watch)) as responses:
        for response in responses:
            place = json.loads(response.facts.get(EnvironmentPlace.__name__, "{}")).get("is")
            if place is None or not mine:
                unknown.append(response)
                continue
            groups.setdefault(place["files"], []).append(response)
            shared |= {response.node} if place["shared"] else set()
    ours = groups.pop(mine)
    others = tuple(tuple(nodes) for nodes in groups.values())
    return Environments(tuple(ours), others, frozenset(shared), tuple(unknown))


def show(nodes: RequestedNodes, run: Session, collection: Collection, watch: Watch) -> None:
    """Return what `carry_out` would repair where, without changing anything."""
    way = transport.way_to(nodes, run, collection)
    announce(way.description)
    announce(environments(way, run, collection, watch).sentence())


def carry_out(
    nodes: RequestedNodes, run: Session, collection: Collection, report: Report, *, unsafe: bool, watch: Watch
) -> tuple[Report, tuple[NodeResponse, ...]]:
    """Repair here, then the other environments, and examine all nodes again.

    Also return the nodes that were left out.

    If the repair of the first environment that needs it fails, the others are not touched.
    """
    way = transport.way_to(nodes, run, collection)
    announce(way.description)
    found = environments(way, run, collection, watch)
    announce(found.sentence())
    done = list(repair.carry_out(run, collection, report, unsafe=unsafe, in_place=True).repairs or ())
    tried = any(repair.outcome == "repaired" for repair in done)
    left = list(found.unknown)
    for turn in _turns(found, alone=not tried):
        if any(repair.outcome in _FAILED for repair in done):
            announce(f"skips {fold(response.node for response in turn)}: the first repair did not help")
            left += turn
            continue
        repaired, no_response = _repaired(way, run, collection, turn, unsafe=unsafe, watch=watch)
        done += repaired
        left += no_response
    if any(repair.outcome == "repaired" and repair.transaction is None for repair in done):
        announce(f"undo --all {_named(nodes, run)} undoes everything, here and there")
    after = about_nodes(examine(Request(run, ReachedNodes(way)), watch).report, nodes)
    return with_repairs(after, done, applied=True), tuple(left)


def _named(nodes: RequestedNodes, run: Session) -> str:
    """Return the options for another command to reach the same nodes and environment."""
    target = replace(run.target, libraries=(), files=(), words=(), model=None, data=())
    return shlex.join([*nodes.arguments, *target.arguments])


def _turns(found: Environments, *, alone: bool) -> Iterator[tuple[NodeResponse, ...]]:
    """Yield one node per environment; on shared file systems one by one, because two may be the same.

    The first is `alone` if it is still unknown whether the repair helps.
    """
    first = [nodes[0] for nodes in found.others]
    yield from ((node,) for node in first if node.node in found.shared)
    own = [node for node in first if node.node not in found.shared]
    if alone and len(own) == len(first) and own:
        yield (own.pop(0),)
    if own:
        yield tuple(own)


def _repaired(
    way: Way,
    run: Session,
    collection: Collection,
    turn: Sequence[NodeResponse],
    *,
    unsafe: bool,
    watch: Watch,
) -> tuple[list[Repair], list[NodeResponse]]:
    """Let these nodes repair their environments. Also return those that did not respond."""
    parcel = repair_parcel(run, collection, unsafe=unsafe)
    nodes_by_repair: dict[Repair, list[str]] = {}
    no_response = []
    with contextlib.closing(way.query(parcel, turn, watch, LONGEST)) as responses:
        for response in responses:
            if response.missing or REPAIRS not in response.facts:
                announce(f"could not repair {response.node}: {response.missing or 'it did not report'}")
                no_response.append(response)
                continue
            for fields in json.loads(response.facts[REPAIRS]):
                nodes_by_repair.setdefault(_as_one(fields), []).append(
                    _with_journal(response.node, fields["transaction"])
                )
    return [_on(nodes, repair) for repair, nodes in nodes_by_repair.items()], no_response


def _as_one(fields: dict[str, object]) -> Repair:
    """Return a repair without what differs between nodes, so equal repairs become one."""
    texts = {name: str(fields[name]) for name in ("fix", "code", "title", "safety", "reason", "restart")}
    return Repair(**texts, outcome=fields["outcome"])  # type: ignore[arg-type]


def _with_journal(node: str, transaction: object) -> str:
    return f"{node} ({transaction})" if transaction else node


def _on(nodes: Iterable[str], repair: Repair) -> Repair:
    """Add where it was done. The names in brackets are those of the journal on that node."""
    where = ", ".join(nodes)
    return replace(repair, reason=f"on {where}" + (f": {repair.reason}" if repair.reason else ""))

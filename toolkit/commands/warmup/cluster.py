"""Run `warmup` on many nodes: query what each lacks and where it is stored, then let those nodes read it.

From local disks all nodes read at once. From a shared file system at most as many read at a time as the user
allows; a node that finishes makes room for the next.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from verl_doctor.toolkit.cluster import transport
from verl_doctor.toolkit.cluster.node_parcel import warm_parcel
from verl_doctor.toolkit.cluster.node_program import WARMED
from verl_doctor.toolkit.cluster.node_request import BUDGET, RequestedNodes, Sharing
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.commands.warmup.warmup import Node
from verl_doctor.toolkit.console.progress import Progress, announce
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.process.signals import as_ctrl_c
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.text import counted, in_bytes, listed
from verl_doctor.toolkit.warm.request import WarmRequest
from verl_doctor.toolkit.warm.summary import Summary

_LOOK = 30.0  # seconds in which a node reports what it lacks
_SLOW = 50_000_000  # bytes per second; a slower node is not awaited to the end
_AROUND = 60.0  # seconds that a node has besides the reading
_SUMMING_UP = 10.0  # seconds of these for its report when its time is up, at most half of them


def warm_nodes(
    nodes: RequestedNodes, run: Session, collection: Collection, warm_request: WarmRequest, at_once: int
) -> tuple[Node, ...]:
    """Warm up every node, and include those that did not respond.

    Raises CouldNotQuery if no node can be queried.

    Ctrl-C and SIGTERM end the reading on all nodes; results received until then count.
    """
    way = transport.way_to(replace(nodes, budget=min(nodes.budget, BUDGET)), run, collection)
    announce(way.description)
    with Progress() as progress:
        look = warm_parcel(run, replace(warm_request, dry_run=True), _LOOK)
        with contextlib.closing(
            way.query(look, watch=progress.show, longest=min(nodes.budget, _LOOK))
        ) as responses:
            by_node = {_key(response): response for response in responses}
        found = {key: _node(response) for key, response in by_node.items()}
        cold = {
            key: node.pages for key, node in found.items() if node.pages is not None and node.pages.missing
        }
        if cold and not warm_request.dry_run:
            sharing = Sharing({key: shares(pages) for key, pages in cold.items()}, at_once)
            progress.done(f"verl-doctor {_sentence(cold, sharing)}")
            longest, budget = _patience(cold, sharing, nodes.budget)
            way = transport.way_to(replace(nodes, budget=budget), run, collection)
            parcel = warm_parcel(run, warm_request, longest - min(_SUMMING_UP, longest / 2))
            only = [by_node[key] for key in cold]
            found |= {
                key: Node(found[key].name, missing="it was ended before it had reported") for key in cold
            }
            with (
                as_ctrl_c(signal.SIGTERM, signal.SIGHUP),
                contextlib.suppress(KeyboardInterrupt),
                contextlib.closing(way.query(parcel, only, progress.show, longest, sharing)) as responses,
            ):
                for response in responses:
                    found[_key(response)] = _node(response)
    return tuple(sorted(found.values(), key=lambda node: node.name))


def shares(pages: Summary) -> tuple[str, ...]:
    """Return the file systems of the files that other machines read too."""
    return tuple(f"{mount.kind} {mount.source}" for mount in pages.mounts if mount.shared)


def _patience(cold: Mapping[str, Summary], sharing: Sharing, budget: float) -> tuple[float, float]:
    """Return the seconds for one node, and for all of them in turns; both are within the user's limit."""
    longest = _AROUND + max(pages.missing for pages in cold.values()) / _SLOW
    crowd = Counter(share for shares_of_one in sharing.of.values() for share in shares_of_one)
    turns = max((-(-number // sharing.most) for number in crowd.values()), default=1)
    return min(longest, budget), min(longest * turns, budget)


def _key(response: NodeResponse) -> str:
    return response.number or response.node


def _node(response: NodeResponse) -> Node:
    if response.missing or WARMED not in response.facts:
        return Node(response.node, missing=response.missing or "it did not report")
    try:
        return Node(response.node, restored(Summary, json.loads(response.facts[WARMED])))
    except (ValueError, TypeError):
        return Node(response.node, missing="its answer is damaged")


def _sentence(cold: Mapping[str, Summary], sharing: Sharing) -> str:
    most = in_bytes(max(pages.missing for pages in cold.values()))
    systems = list(dict.fromkeys(share for shares in sharing.of.values() for share in shares))
    turns = f"; {listed(systems, 2)}: {sharing.most} at a time" if systems else ", each from its own disks"
    return f"reads up to {most} on {counted(len(cold), 'node')}{turns}"

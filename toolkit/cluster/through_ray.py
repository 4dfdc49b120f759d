"""Requests the facts of all Ray cluster nodes through Ray itself, passing on responses as they arrive.

The driver is a child under the target's interpreter (`probes.cluster`), because Ray accepts no other version.
It starts a job in the cluster, which ends with it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.cluster import node_reader
from verl_doctor.toolkit.cluster.node_parcel import Parcel
from verl_doctor.toolkit.cluster.node_request import ALONE, CouldNotQuery, Sharing
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.collectors.host.clock_offset import ClockOffset
from verl_doctor.toolkit.engine.factsfile import entry
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import cluster
from verl_doctor.toolkit.probes import node as node_probe
from verl_doctor.toolkit.process.dialogue import Dialogue
from verl_doctor.toolkit.text import counted

_LEAVING = 8.0  # seconds for the driver to cancel its tasks and disconnect from Ray
_LATE = 3.0  # seconds after the driver's own deadline until it is abandoned
_STAGES: Mapping[str, str] = {
    "": "it was not queried: the time was up",
    "hello": "it started no worker in time: its raylet is busy, hangs, or cannot be reached",
    "look": "it did not report its facts in time",
}


@dataclass(frozen=True)
class RayDriver:
    """How to reach the cluster: the target's interpreter, the GCS address, and variables for the token."""

    python: str
    address: str
    variables: Mapping[str, str] = field(default_factory=dict)


def node_responses(
    machine: Machine,
    driver: RayDriver,
    parcel: Parcel,
    budget: float,
    watch: Callable[[str], None] = lambda _: None,
    *,
    only: Collection[str] = (),
    longest: float = 20.0,
    sharing: Sharing = ALONE,
) -> Generator[NodeResponse, None, None]:
    """Yield every node of the cluster: with its response once it arrives, or the reason why there is none.

    `budget` and `longest`, the limit for one node, are in seconds. `only` limits the query to nodes with
    these Ray numbers; `sharing` maps numbers to what nodes have in common.

    Raises CouldNotQuery if the cluster cannot be reached, and OSError if the interpreter cannot be started.
    """
    token = f"verl-doctor {secrets.token_hex(8)} "
    deadline = time.monotonic() + budget
    per_node = max(min(budget - 3, longest), 2.0)
    sent = parcel.order(per_node, detached=True)
    plan = {
        "address": driver.address,
        "namespace": f"verl-doctor-{secrets.token_hex(4)}",
        "budget": max(budget - 1, 1.0),
        "patience": per_node + 5,
        "seconds": per_node,
        "only": list(only),
        "shares": {node: list(shares) for node, shares in sharing.of.items()},
        "sharing": sharing.most,
        "text": Path(node_probe.__file__).read_text("utf-8"),
        "bytes": len(sent),
    }
    order = json.dumps(plan).encode("ascii") + b"\n" + sent
    text = Path(cluster.__file__).read_text("utf-8")
    variables = {"PYTHONDONTWRITEBYTECODE": "1", **driver.variables}
    with machine.open_dialogue(
        [driver.python, "-c", text, token], order, env=variables, patience=_LEAVING
    ) as dialogue:
        yield from _NodeTable(watch, only).responses(dialogue, token, deadline + _LATE, driver.address)


class _NodeTable:
    """The nodes of the cluster, and which of them have responded."""

    def __init__(self, watch: Callable[[str], None], only: Collection[str]) -> None:
        self._watch = watch
        self._only = only
        self._pending: dict[str, tuple[str, str]] = {}
        self._count = 0

    def responses(
        self, dialogue: Dialogue, token: str, deadline: float, address: str
    ) -> Iterator[NodeResponse]:
        """Read the driver's output, then yield the nodes that it did not report."""
        self._watch(f"connecting to the Ray cluster at {address}")
        ended = "the time was up"
        connected = False
        for line in dialogue.lines(deadline):
            _, found, rest = line.partition(token.encode())
            if not found:
                continue
            message = json.loads(rest)
            if "refused" in message:
                raise CouldNotQuery(message["refused"])
            connected = connected or "job" in message
            if "broke" in message:
                ended = f"the driver broke: {message['broke']}"
            yield from self._read(message)
            if "done" in message or "broke" in message:
                break
        else:
            if not connected:
                raise CouldNotQuery(f"no connection within the time limit; {dialogue.last_error}")
            if time.monotonic() < deadline:
                ended = f"the driver lost the cluster: {dialogue.last_error}"
        for name, place in self._pending.values():
            yield NodeResponse(name, place, missing=ended)

    def _read(self, message: Mapping[str, Any]) -> Iterator[NodeResponse]:
        if "nodes" in message:
            yield from self._list(message["nodes"])
        elif (node := message.get("node")) in self._pending:
            name, place = self._pending.pop(node)
            yield self._response(message, name, place)
            self._watch(f"{self._count - len(self._pending)} of {counted(self._count, 'node')} responded")

    def _list(self, rows: list[dict[str, Any]]) -> Iterator[NodeResponse]:
        """List the nodes. A dead node counts if it was not replaced: no live node has its address."""
        alive = [row for row in rows if row["alive"]]
        addresses = {row["address"] for row in alive}
        gone = {row["address"]: row for row in rows if not row["alive"] and row["address"] not in addresses}
        named = [*alive, *gone.values()]
        names = _names(named)
        self._pending = {
            row["node"]: (names[row["node"]], row["address"])
            for row in alive
            if not self._only or row["node"] in self._only
        }
        self._count = len(self._pending)
        for row in gone.values() if not self._only else ():
            yield NodeResponse(names[row["node"]], row["address"], missing=row["died"])

    def _response(self, message: Mapping[str, Any], name: str, place: str) -> NodeResponse:
        seconds = float(message.get("seconds") or 0.0)
        if "answer" not in message:
            missing = message.get("missing") or _STAGES[str(message.get("stage", ""))]
            return NodeResponse(name, place, missing=str(missing), seconds=seconds, number=message["node"])
        facts, missing = node_reader.read(message["answer"])
        if facts and (clock := message.get("clock")):
            facts = {**facts, ClockOffset.__name__: json.dumps(entry(ClockOffset(*clock)))}
        return NodeResponse(name, place, facts, missing, seconds, message["node"])


def _names(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return each node's name: the host name if unique, otherwise the address, with the port if shared."""
    hosts, addresses = Counter(row["host"] for row in rows), Counter(row["address"] for row in rows)
    return {
        row["node"]: row["host"]
        if row["host"] and hosts[row["host"]] == 1
        else row["address"]
        if addresses[row["address"]] == 1
        else f"{row['address']}:{row['port']}"
        for row in rows
    }

"""The driver that queries the nodes of a Ray cluster.

It runs under the target's interpreter, because Ray accepts no other version.

Started as `PYTHON -c TEXT TOKEN`. Stdin has one line of JSON, the `plan`, followed by what each node is sent
(the request and the parcel of `probes.node`). Every output line is JSON after the token, printed as soon as
the result is known. When stdin ends, the results are no longer needed: the tasks are cancelled, and the
driver disconnects from Ray.

Each node gets three tasks without CPUs, pinned to it, in sequence: "hello" starts a worker there, which takes
more than a second; a second "hello" in the now warm worker measures the clock; "look" runs `probes.node`.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SIMULTANEOUS = 256  # nodes queried at the same time, each for some seconds
_ON_ONE_ADDRESS = 2  # of these at one address: raylets on the same machine share its cores
_STEP = 0.1  # seconds between two polls for results
_NODE_TABLE = 2.0  # seconds between two reads of the node table, or ten times as long as one takes
_PING = 0.25  # seconds to wait for the reply of a warm worker
_PINGS = 3
_LEAVING = 2.0  # seconds for cancelled tasks to end
_LONGEST = 300  # characters of an error message


def worker_environ() -> dict[str, str]:
    """Return how far a node's clock is ahead of this one's, in seconds, and the error bound.

    None if the reply was too slow.

    Ray hides the GPUs from a task that requests none. What Ray removes from every worker, such as the
    raylet's LD_PRELOAD, stays removed.
    """
    own = dict(os.environ)
    for pid in (own.get("RAY_RAYLET_PID", ""), str(os.getppid())):
        with contextlib.suppress(OSError):
            entries = os.fsdecode(Path("/proc", pid, "environ").read_bytes()).split("\0")
            pairs = (entry.partition("=") for entry in entries if "=" in entry)
            raylets = {name: value for name, _, value in pairs}
            if raylets:
                return {
                    name: value
                    for name, value in raylets.items()
                    if name in own or name.endswith("_VISIBLE_DEVICES")
                }
    return own


def hello() -> float:
    """Return the node's clock."""
    return time.time()


def look(text: str, sent: bytes, seconds: float) -> str:
    """Run `probes.node` on this node and return its output.

    None of its processes outlives this call, however it ends.

    It waits in short steps, because Ray can interrupt a task between two instructions, but not in a system
    call.
    """
    mark = "verl-doctor answers "
    process: Any = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text, mark],
        env=worker_environ(),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    received = []
    deadline = time.monotonic() + seconds
    order, answer = process.stdin, process.stdout
    try:
        order.write(sent)
        order.flush()
        while time.monotonic() < deadline:
            if select.select([answer], [], [], 0.2)[0]:
                piece = os.read(answer.fileno(), 1 << 20)
                if not piece:
                    break
                received.append(piece)
    finally:
        with contextlib.suppress(OSError):
            order.close()  # the other end stops then
        answer.close()
        process.wait()
    return b"".join(received).decode("ascii", "replace").rpartition(mark)[2].strip()


class NodeQuery:
    """A node to query. `shares` names what it shares with others, such as a file system."""

    def __init__(self, node: str, address: str, shares: Iterable[str] = ()) -> None:
        self.node = node
        self.address = address
        self.shares = frozenset(shares)
        self.stage = ""
        self.began = 0.0
        self.clock: tuple[float, float] | None = None


def startable(
    waiting: Iterable[NodeQuery], running: Iterable[NodeQuery], *, at_once: int, sharing: int
) -> list[NodeQuery]:
    """Return the next nodes, the longest waiting first.

    At most `at_once`, and a limited number for each shared resource.
    """
    busy = list(running)
    addresses = collections.Counter(query.address for query in busy)
    shares = collections.Counter(share for query in busy for share in query.shares)
    chosen: list[NodeQuery] = []
    for query in waiting:
        if len(busy) + len(chosen) >= at_once:
            break
        if addresses[query.address] < _ON_ONE_ADDRESS and all(
            shares[share] < sharing for share in query.shares
        ):
            chosen.append(query)
            addresses[query.address] += 1
            shares.update(query.shares)
    return chosen


class Survey:
    """All nodes to query, and their results so far."""

    def __init__(self, ray: Any, plan: dict[str, Any], sent: bytes, write: Any) -> None:
        self._ray, self._plan, self._write = ray, plan, write
        self._sent = ray.put(sent)
        self._hello, self._look = ray.remote(hello), ray.remote(look)
        self._waiting: collections.deque[NodeQuery] = collections.deque()
        self._running: dict[Any, NodeQuery] = {}
        self._table_next = 0.0

    def run(self, deadline: float) -> None:
        """Query every living node until all have replied, time is up, or the results are no longer needed."""
        rows = self._ray.nodes()
        self._write({"nodes": [_node_entry(row) for row in rows]})
        only = self._plan["only"]
        self._waiting.extend(
            NodeQuery(row["NodeID"], row["NodeManagerAddress"], self._plan["shares"].get(row["NodeID"], ()))
            for row in rows
            if row["Alive"] and (not only or row["NodeID"] in only)
        )
        while self._waiting or self._running:
            if time.monotonic() > deadline or _stdin_ended():
                break
            self._start()
            self._collect()
            self._drop_dead()
            if self._waiting:
                self._give_up()
        for query in (*self._running.values(), *self._waiting):
            self._no_response(query)

    def leave(self) -> None:
        """Cancel running tasks, and give them a moment to clean up."""
        for reference in self._running:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=False)
        if self._running:
            with contextlib.suppress(Exception):
                self._ray.wait(list(self._running), num_returns=len(self._running), timeout=_LEAVING)

    def _start(self) -> None:
        """Query as many more nodes as the limits allow."""
        for query in startable(
            self._waiting, self._running.values(), at_once=_SIMULTANEOUS, sharing=self._plan["sharing"]
        ):
            self._waiting.remove(query)
            query.began = time.monotonic()
            self._send(query, "hello")

    def _send(self, query: NodeQuery, stage: str) -> None:
        """Send the next task to a node."""
        query.stage = stage
        task = self._pinned(self._hello if stage == "hello" else self._look, query.node)
        arguments = () if stage == "hello" else (self._plan["text"], self._sent, self._plan["seconds"] + 5)
        self._running[task.remote(*arguments)] = query

    def _pinned(self, function: Any, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

        return function.options(
            name="verl-doctor",
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
        )

    def _collect(self) -> None:
        """Collect finished tasks."""
        running = list(self._running)
        ready, _ = self._ray.wait(running, num_returns=1, timeout=_STEP)
        if ready:
            ready, _ = self._ray.wait(running, num_returns=len(running), timeout=0)
        for reference in ready:
            query = self._running.pop(reference)
            try:
                answer = self._ray.get(reference)
            except Exception as error:  # noqa: BLE001 - whatever a node's task ends in is that node's answer
                dead = self._dead().get(query.node)
                self._missing(query, _died(dead) if dead else f"its task failed: {_words(error)}")
                continue
            if query.stage == "hello":
                query.clock = self._compared(query.node)
                self._send(query, "look")
            else:
                self._write(
                    {
                        "node": query.node,
                        "answer": answer,
                        "clock": query.clock,
                        "seconds": _since(query.began),
                    }
                )

    def _compared(self, node: str) -> tuple[float, float] | None:
        """Return how far a node's clock is ahead of this one's, in seconds, and the error bound.

        None if the reply was too slow.
        """
        best = None
        for _ in range(_PINGS):
            sent, begun = time.time(), time.monotonic()
            reference = self._pinned(self._hello, node).remote()
            try:
                remote = self._ray.get(reference, timeout=_PING)
            except Exception:  # noqa: BLE001 - then the clock is not compared
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=False)
                break
            half = (time.monotonic() - begun) / 2
            if best is None or half < best[1]:
                best = (remote - sent - half, half)
        return best

    def _dead(self) -> dict[str, dict[str, Any]]:
        """Return the dead nodes, by number. A short absence of the control store is ignored."""
        try:
            return {row["NodeID"]: row for row in self._ray.nodes() if not row["Alive"]}
        except Exception:  # noqa: BLE001 - see above
            return {}

    def _drop_dead(self) -> None:
        """Drop the nodes that Ray has since declared dead."""
        begun = time.monotonic()
        if begun < self._table_next:
            return
        dead = self._dead()
        for reference, query in list(self._running.items()):
            if query.node in dead:
                del self._running[reference]
                self._missing(query, _died(dead[query.node]))
        for query in [query for query in self._waiting if query.node in dead]:
            self._waiting.remove(query)
            self._missing(query, _died(dead[query.node]))
        now = time.monotonic()
        self._table_next = now + max(_NODE_TABLE, 10 * (now - begun))

    def _give_up(self) -> None:
        """Stop waiting for very slow nodes."""
        for reference, query in list(self._running.items()):
            if _since(query.began) > self._plan["patience"]:
                del self._running[reference]
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=False)
                self._no_response(query)

    def _no_response(self, query: NodeQuery) -> None:
        self._write({"node": query.node, "stage": query.stage, "seconds": _since(query.began)})

    def _missing(self, query: NodeQuery, why: str) -> None:
        self._write({"node": query.node, "missing": why, "seconds": _since(query.began)})


def main(token: str) -> None:
    """Connect, query, report, and leave."""
    plan = json.loads(sys.stdin.buffer.readline())
    sent = sys.stdin.buffer.read(plan["bytes"])
    deadline = time.monotonic() + plan["budget"]

    def write(line: dict[str, Any]) -> None:
        sys.stdout.write(f"\n{token}{json.dumps(line)}\n")
        sys.stdout.flush()

    try:
        import ray  # noqa: PLC0415

        ray.init(
            address=plan["address"],
            namespace=plan["namespace"],
            log_to_driver=False,
            logging_level="error",
            configure_logging=True,
        )
    except BaseException as error:  # noqa: BLE001 - Ray may even exit
        write({"refused": _words(error)})
        return
    survey = None
    try:
        write({"job": ray.get_runtime_context().get_job_id()})
        survey = Survey(ray, plan, sent, write)
        survey.run(deadline)
        write({"done": True})
    except Exception as error:  # noqa: BLE001 - what was heard until then counts
        write({"broke": _words(error)})
    finally:
        if survey is not None:
            survey.leave()
        ray.shutdown()


def _node_entry(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": row["NodeID"],
        "address": row["NodeManagerAddress"],
        "port": row.get("NodeManagerPort", 0),
        "host": row.get("NodeManagerHostname", ""),
        "alive": bool(row["Alive"]),
        "died": "" if row["Alive"] else _died(row),
    }


def _died(row: dict[str, Any]) -> str:
    """Return what Ray reports about a node's end."""
    message = str(row.get("DeathReasonMessage") or "").strip()
    return f"Ray declared it dead{f': {message}' if message else ''}"[:_LONGEST]


def _stdin_ended() -> bool:
    """Return whether stdin has ended. Nothing more is ever sent, so readable means closed."""
    return bool(select.select([0], [], [], 0)[0])


def _since(moment: float) -> float:
    return round(time.monotonic() - moment, 3) if moment else 0.0


def _words(error: BaseException) -> str:
    """Format an error in one line; an error without a message uses its cause's."""
    seen = error
    while not str(seen).strip() and (seen.__cause__ or seen.__context__):
        seen = seen.__cause__ or seen.__context__  # type: ignore[assignment]
    lines = [line.strip() for line in str(seen).splitlines() if line.strip()]
    return " ".join(lines)[:_LONGEST] or type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # a thread of Ray may hang

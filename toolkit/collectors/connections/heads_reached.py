"""Tests if anything listens at the job head's address: one TCP connection to each, closed immediately."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system.tcp_probe import Reply, try_connection

_LIMIT = 2.0  # seconds


@dataclass(frozen=True)
class Knock:
    """The result of one attempt. `error` is the kernel's name for it, `seconds` its duration."""

    head: Head
    reply: Reply
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class HeadsReached:
    """The heads for which an address and a port are given, and names that do not resolve."""

    knocks: tuple[Knock, ...] = ()


@collector(timeout=10)
def heads_reached(nodes: JobNodes) -> HeadsReached | Unknown:
    """Try all heads at once. No data is sent."""
    named = list(_named(nodes))
    if not named:
        return Absent("no address of a head is given with a port")
    with TURNS.waiting(), ThreadPoolExecutor(len(named)) as pool:
        return HeadsReached(tuple(pool.map(_knock, named)))


def _named(nodes: JobNodes) -> Iterator[Head]:
    return (head for head in nodes.heads if head.port or not head.address)


def _knock(head: Head) -> Knock:
    if not head.address:
        return Knock(head, "no such name")
    started = time.monotonic()
    answer = try_connection(head.address, head.port, _LIMIT)
    return Knock(head, answer.reply, answer.error, round(time.monotonic() - started, 3))

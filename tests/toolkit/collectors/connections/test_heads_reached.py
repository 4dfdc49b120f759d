"""Connections to heads, and the meaning of each kernel error."""

from __future__ import annotations

import errno
import socket

import pytest

from verl_doctor.toolkit.collectors.connections.heads_reached import HeadsReached, heads_reached
from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.facts import Absent


def replies(*heads: Head) -> list[str]:
    found = heads_reached.collect(JobNodes(heads=heads))
    assert isinstance(found, HeadsReached)
    return [knock.reply for knock in found.knocks]


def here(port: int) -> Head:
    return Head("127.0.0.1", "RAY_ADDRESS", port, address="127.0.0.1")


def test_port_with_and_without_a_listener() -> None:
    with socket.socket() as listening, socket.socket() as bound:
        for each in (listening, bound):
            each.bind(("127.0.0.1", 0))
        listening.listen()
        assert replies(here(listening.getsockname()[1]), here(bound.getsockname()[1])) == [
            "connected",
            "refused",
        ]


@pytest.mark.parametrize(
    ("error", "reply"),
    [(TimeoutError("timed out"), "silence"), (OSError(errno.EHOSTUNREACH, "No route to host"), "no route")],
)
def test_other_kernel_errors_are_translated(
    monkeypatch: pytest.MonkeyPatch, error: OSError, reply: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fails)
    assert replies(here(6379)) == [reply]


def test_host_name_without_an_address() -> None:
    assert replies(Head("nowhere", "RAY_ADDRESS", 6379)) == ["no such name"]


def test_head_without_a_port_is_not_contacted() -> None:
    assert isinstance(heads_reached.collect(JobNodes(heads=(here(0),))), Absent)
    assert isinstance(heads_reached.collect(JobNodes()), Absent)

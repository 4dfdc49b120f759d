"""Results of the child that ends actors, and its requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from verl_doctor.toolkit.commands.clean.actor import remove
from verl_doctor.toolkit.leftover import KillActor, Leftover, Outcome, RemoveGroup
from verl_doctor.toolkit.machine import Machine, Output

ACTOR = Leftover("actor", "rm", ("p",), KillActor("h:1", "s1", "a1", "/env/bin/python"))
GROUP = Leftover("placement group", "pool", ("p",), RemoveGroup("h:1", "s1", "g1", "/env/bin/python"))
ELSEWHERE = Leftover(
    "actor", "rm", ("p",), KillActor("h:2", "s2", "a2", "/env/bin/python", "/home/me/.ray/token")
)


class Child:
    """A child with this output that records its requests."""

    def __init__(self, told: dict[str, Any] | None) -> None:
        self.told = told
        self.asked: list[tuple[str, dict[str, Any], Mapping[str, str]]] = []

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
        del timeout
        self.asked.append((argv[0], json.loads(argv[4]), environ))
        said = f"noise\n{argv[3]}{json.dumps(self.told)}\n" if self.told is not None else ""
        return Output(0, said, "", 0.1)


def states(told: dict[str, Any] | None, *leftovers: Leftover) -> list[tuple[str, str]]:
    """Outcome and reason for each leftover."""
    outcomes: list[Outcome] = list(remove(leftovers, Machine(environ={}, runner=Child(told))))
    assert [outcome.leftover for outcome in outcomes] == list(leftovers)
    return [(outcome.state, outcome.why) for outcome in outcomes]


def test_each_cluster_is_queried_once_with_its_token() -> None:
    child = Child({"told": {"a1": "", "g1": "", "a2": ""}})
    list(remove((ACTOR, GROUP, ELSEWHERE), Machine(environ={}, runner=child)))
    (python, first, variables), (_, second, with_token) = child.asked
    assert python == "/env/bin/python"
    assert (first["address"], first["session"], first["actors"], first["groups"]) == (
        "h:1",
        "s1",
        ["a1"],
        ["g1"],
    )
    assert variables["RAY_AUTH_MODE"] == "disabled"
    assert second["actors"] == ["a2"]
    assert with_token["RAY_AUTH_MODE"] == "token"
    assert with_token["RAY_AUTH_TOKEN_PATH"] == "/home/me/.ray/token"


@pytest.mark.parametrize(
    ("told", "actor", "group"),
    [
        ({"told": {"a1": "", "g1": ""}}, ("removed", ""), ("removed", "")),
        ({"told": {"a1": "job 02 (process 7) has connected meanwhile", "g1": ""}}, ("not removed", "job 02 (process 7) has connected meanwhile"), ("removed", "")),
        ({"told": {"a1": ""}}, ("removed", ""), ("not removed", "Ray did not report the result")),
        ({"refused": "it is now another cluster"}, ("not removed", "it is now another cluster"), ("not removed", "it is now another cluster")),
        ({}, ("not removed", "Ray did not report the result"), ("not removed", "Ray did not report the result")),
    ],
)  # fmt: skip
def test_result_for_each_leftover(
    told: dict[str, Any], actor: tuple[str, str], group: tuple[str, str]
) -> None:
    assert states(told, ACTOR, GROUP) == [actor, group]


def test_silent_child_has_removed_nothing() -> None:
    (one,) = states(None, ACTOR)
    assert one[0] == "not removed"
    assert one[1].startswith("Ray could not be queried: ")

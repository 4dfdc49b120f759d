"""Where the value comes from that the job's workers see."""

from __future__ import annotations

from verl_doctor.checks._variables import Place
from verl_doctor.checks._worker_values import worker_places
from verl_doctor.toolkit.fact_effective_environment import WITHHELD, Effective, EffectiveEnvironment, Value
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_launch import Launch, Setting
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.rule import Location

NAME = "GLOO_SOCKET_IFNAME"
SHELL = Variables({NAME: "eth0"})
SCRIPT = Launch((("run.sh", "shell script"),), settings=(Setting(NAME, "eth1", "run.sh", 3),))
NONE = Absent("none was named")


def workers(value: Value, path: str = "", line: int = 0) -> EffectiveEnvironment:
    return EffectiveEnvironment(
        (Effective(NAME, Value("eth0"), (value,), (value,), "the raylet", path, line),)
    )


def test_without_the_effective_environment_every_place_counts() -> None:
    found = worker_places(NAME, SHELL, SCRIPT, NONE)
    assert [place.value for place in found] == ["eth1", "eth0"]
    assert found == worker_places(NAME, SHELL, SCRIPT, workers(Value(untold=WITHHELD)))


def test_what_the_raylet_does_not_have_no_worker_has() -> None:
    assert worker_places(NAME, SHELL, SCRIPT, workers(Value())) == []
    assert worker_places(NAME, SHELL, SCRIPT, EffectiveEnvironment()) == []


def test_the_line_that_sets_what_workers_see() -> None:
    (place,) = worker_places(NAME, SHELL, SCRIPT, workers(Value("eth1")))
    assert place.location == Location("run.sh", 3)


def test_a_value_that_only_the_raylet_has() -> None:
    assert worker_places(NAME, SHELL, SCRIPT, workers(Value("ib0"))) == [
        Place(NAME, "ib0", None, "the raylet")
    ]
    (place,) = worker_places(NAME, SHELL, NONE, workers(Value("ib0"), "env.yaml", 2))
    assert place.location == Location("env.yaml", 2)

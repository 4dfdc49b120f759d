"""The time that importing Ray takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from environments import interpreter

from verl_doctor.patches.more_time_to_register import more_time_to_register
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.fact_ray_import import RayImport, ray_import
from verl_doctor.toolkit.fact_trees import LibraryTrees, Tree
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Answer, Machine
from verl_doctor.toolkit.rule import Evidence, Finding

RAY = LibraryTrees((Tree("/env/ray", "ray", "2.49.2", ""),))


def look(answer: Answer) -> RayImport | Unknown:
    def run(argv: Sequence[str], _env: Mapping[str, str], _timeout: float) -> Answer:
        assert argv[1:] == ["-c", "import ray"]
        return answer

    return ray_import.collect(interpreter(), RAY, Machine(environ={}, runner=run))


def test_seconds() -> None:
    assert look(Answer(0, "", "", 0.789)) == RayImport(0.79)
    assert look(Answer(None, "", "", 45.0)) == RayImport(45.0, ended=False)


def test_what_cannot_be_imported() -> None:
    found = look(Answer(1, "", "ImportError: no", 0.1))
    assert isinstance(found, Unknown)
    assert "ImportError: no" in found.reason
    assert isinstance(ray_import.collect(interpreter(), LibraryTrees(()), Machine(environ={})), Absent)


FINDING = Finding("slow", Evidence("25 s"), remedy="or set RAY_worker_register_timeout_seconds=240")


def test_the_time_is_set() -> None:
    assert more_time_to_register.plan(FINDING, JobVariables()) == [
        SetVariable(
            "RAY_worker_register_timeout_seconds",
            "240",
            "slow",
            "the environment is on a local disk",
            node_only=True,
        )
    ]


def test_a_script_that_sets_it_goes_first() -> None:
    name = "RAY_worker_register_timeout_seconds"
    refusal = more_time_to_register.plan(FINDING, JobVariables({name: "60"}, {name: ("run.sh", 3)}))
    assert isinstance(refusal, Refusal)
    assert "run.sh:3" in refusal.reason
    assert isinstance(more_time_to_register.plan(Finding("", Evidence("")), JobVariables()), Refusal)

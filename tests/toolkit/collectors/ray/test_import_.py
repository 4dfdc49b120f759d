"""The time that importing Ray takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from support.environments import interpreter

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.patches.variables.more_time_to_register import more_time_to_register
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.ray.import_ import RayImport, ray_import
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.repair.plan import with_reason
from verl_doctor.toolkit.rule import Evidence, Finding

RAY = LibraryTrees((Tree("/env/ray", "ray", "2.49.2", ""),))


def look(answer: Output) -> RayImport | Unknown:
    def run(argv: Sequence[str], _env: Mapping[str, str], _timeout: float) -> Output:
        assert argv[1:] == ["-c", "import ray"]
        return answer

    return ray_import.collect(interpreter(), RAY, Machine(environ={}, runner=run))


def test_seconds() -> None:
    assert look(Output(0, "", "", 0.789)) == RayImport(0.79)
    assert look(Output(None, "", "", 45.0)) == RayImport(45.0, ended=False)


def test_failed_import_is_unknown() -> None:
    found = look(Output(1, "", "ImportError: no", 0.1))
    assert isinstance(found, Unknown)
    assert "ImportError: no" in found.reason
    assert isinstance(ray_import.collect(interpreter(), LibraryTrees(()), Machine(environ={})), Absent)


LIMITS = an_h200_node(healthy(cpus=32), online=32)
COUNTED = RayCpus(32, "/sys/devices/system/cpu/online")
FINDING = Finding("slow", Evidence("25 s"))
NAME = "RAY_worker_register_timeout_seconds"


def plan(job: JobVariables, seconds: float = 60.0) -> list[Change] | Refusal:
    """Plan for slow imports of Ray."""
    changes = more_time_to_register.plan(
        FINDING, RayImport(seconds), COUNTED, LIMITS, Variables(), job, configured()[0]
    )
    return changes if isinstance(changes, Refusal) else [with_reason(change, FINDING) for change in changes]


def test_timeout_variable_is_set() -> None:
    assert plan(JobVariables()) == [
        SetVariable(NAME, "240", "slow", "the environment is on a local disk", node_only=True)
    ]


def test_timeout_set_in_the_script_is_refused() -> None:
    refusal = plan(JobVariables({NAME: "60"}, {NAME: ("run.sh", 3)}))
    assert isinstance(refusal, Refusal)
    assert "run.sh:3" in refusal.reason


def test_fast_import_gets_no_longer_timeout() -> None:
    assert isinstance(plan(JobVariables(), seconds=1.0), Refusal)

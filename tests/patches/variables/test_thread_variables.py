"""Numbers of threads that fit the machine."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.checks.shared.effective import own, row
from verl_doctor.checks.shared.limits_examples import an_h200_node, gpus, healthy
from verl_doctor.patches.variables.fewer_threads import fewer_threads
from verl_doctor.patches.variables.thread_variables import thread_variables
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.repair.plan import with_reason
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Subject

TOO_MANY = Finding("too many threads", Evidence("128"), subject=Subject("variable", "OMP_NUM_THREADS"))
FACTS = (
    own(row("OMP_NUM_THREADS", "128", "128", "128"), row("MKL_NUM_THREADS", "128", "128", "128")),
    an_h200_node(healthy(cpus=128)),
    gpus(8),
    Variables(),
    configured()[0],
)


def plan(finding: Finding) -> list[Change] | Refusal:
    changes = thread_variables.plan(finding, *FACTS)
    return changes if isinstance(changes, Refusal) else [with_reason(change, finding) for change in changes]


def test_number_is_computed_from_cpus_and_processes() -> None:
    assert plan(TOO_MANY) == [SetVariable("OMP_NUM_THREADS", "5", TOO_MANY.message)]


def test_setting_in_a_script_is_refused_with_its_line() -> None:
    refusal = plan(replace(TOO_MANY, location=Location(SCRIPT, 3)))
    assert isinstance(refusal, Refusal)
    assert f"{SCRIPT}:3 sets it" in refusal.reason


def test_other_variable_is_left_alone() -> None:
    assert isinstance(plan(replace(TOO_MANY, subject=Subject("variable", "KMP_X"))), Refusal)


def test_workers_and_driver_start_fewer_threads() -> None:
    finding = Finding("too few", Evidence("found"))
    few = fewer_threads.plan(finding, an_h200_node())
    assert [(change.name, change.value) for change in few] == [  # type: ignore[union-attr]
        ("RAY_worker_num_grpc_internal_threads", "1"),
        ("OPENBLAS_NUM_THREADS", "1"),
    ]

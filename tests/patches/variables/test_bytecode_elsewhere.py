"""Bytecode caches on the node's own disk."""

from __future__ import annotations

from verl_doctor.checks.interpreter.bytecode_missing import bytecode_missing
from verl_doctor.patches.variables.bytecode_elsewhere import bytecode_elsewhere
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode, PackageBytecode
from verl_doctor.toolkit.testing import run_check

LACKING = Bytecode((PackageBytecode("torch", "/env/site-packages/torch", 2_400, 2_400),), writable=False)
DISK = Caches((), "/scratch/verl-caches-me")


def test_variable_that_disables_writing_is_unset() -> None:
    forbidden = Variables({"PYTHONDONTWRITEBYTECODE": "1"})
    (finding,) = run_check(bytecode_missing, LACKING, forbidden).findings
    assert finding.fix == "bytecode-elsewhere"
    plan = bytecode_elsewhere.plan(finding, LACKING, DISK, forbidden)
    assert isinstance(plan, list)
    assert [(change.name, change.value) for change in plan if isinstance(change, SetVariable)] == [
        ("PYTHONPYCACHEPREFIX", "/scratch/verl-caches-me/pycache"),
        ("PYTHONDONTWRITEBYTECODE", None),
    ]


def test_only_necessary_variables_are_set() -> None:
    (finding,) = run_check(bytecode_missing, LACKING, Variables()).findings
    plan = bytecode_elsewhere.plan(finding, LACKING, DISK, Variables())
    assert isinstance(plan, list)
    assert len(plan) == 1
    assert isinstance(bytecode_elsewhere.plan(finding, LACKING, Caches(()), Variables()), Refusal)


def test_unwritable_prefix_set_by_the_user_has_no_fix() -> None:
    there = Bytecode(LACKING.packages, writable=False, prefix="/caches")
    (finding,) = run_check(bytecode_missing, there, Variables()).findings
    assert finding.fix is None

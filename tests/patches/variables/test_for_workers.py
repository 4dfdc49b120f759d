"""Passing the driver's values to the workers: which values, for which nodes, and never a secret."""

from __future__ import annotations

from verl_doctor.checks.shared.effective import CONSTANTS, row, script, standing
from verl_doctor.checks.variables.default_of_verl_lost import default_of_verl_lost
from verl_doctor.checks.variables.raylet_has_other_value import raylet_has_other_value
from verl_doctor.checks.variables.variable_stays_with_driver import variable_stays_with_driver
from verl_doctor.patches.variables.default_for_workers import default_for_workers
from verl_doctor.patches.variables.value_for_workers import value_for_workers
from verl_doctor.patches.variables.variables_for_workers import variables_for_workers
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    WITHHELD,
    Assigned,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.testing import run_check

TOKEN = Effective("HF_TOKEN", Value(undetermined=WITHHELD, present=True), (Value(),), (Value(),), "nobody")
NOT_SEARCHED = Unknown("not searched")


def found(check: Check, environment: EffectiveEnvironment) -> Finding:
    (finding,) = run_check(check, environment, *script("A")[:2]).findings
    return finding


def given(changes: list[Change] | Refusal) -> dict[str, tuple[str | None, bool]]:
    assert not isinstance(changes, Refusal)
    variables = [change for change in changes if isinstance(change, SetVariable)]
    return {variable.name: (variable.value, variable.node_only) for variable in variables}


def test_all_variables_kept_by_the_driver_are_passed_in_one_plan() -> None:
    environment = standing(
        row("HF_HOME", "/hf", None, None, "nobody"),
        row("NCCL_SOCKET_IFNAME", "eth0", None, None, "nobody"),
        row("NCCL_DEBUG", "INFO", "INFO", "INFO"),
        row("HTTPS_PROXY", "http://***@proxy:8080", None, None, "nobody"),
        TOKEN,
    )
    helped, other = run_check(variable_stays_with_driver, environment, *script("A")[:2]).findings
    assert (helped.fix, other.fix) == ("variables-for-workers", None)
    assert "HTTPS_PROXY, HF_TOKEN" in other.message
    plan = variables_for_workers.plan(helped, environment, NOT_SEARCHED)
    assert given(plan) == {"HF_HOME": ("/hf", False), "NCCL_SOCKET_IFNAME": ("eth0", True)}


def test_unread_values_are_not_passed() -> None:
    environment = standing(row("VLLM_USE_V1", "1", None, None, "nobody"))
    readers = VariableReaders((Reading("VLLM_USE_V1", "vllm"),))
    assert run_check(variable_stays_with_driver, environment, *script()[:2], readers).findings == ()


def test_secret_is_not_written_to_a_file() -> None:
    environment = standing(TOKEN)
    plan = variables_for_workers.plan(
        found(variable_stays_with_driver, environment), environment, NOT_SEARCHED
    )
    assert isinstance(plan, Refusal)
    assert "HF_TOKEN" in plan.reason


def test_value_that_replaced_the_verl_default_is_passed() -> None:
    dropped = Assigned(Value("1"), "training workers", CONSTANTS, 93)
    lost = row("VLLM_DISABLE_COMPILE_CACHE", "0", None, None, "nobody", dropped=dropped)
    environment = standing(row("HF_HOME", "/a", "/b", "/b"), lost)
    plan = default_for_workers.plan(found(default_of_verl_lost, environment), environment)
    assert given(plan) == {"VLLM_DISABLE_COMPILE_CACHE": ("0", False)}


def test_value_of_the_driver_replaces_that_of_the_raylet() -> None:
    environment = standing(row("HF_HOME", "/a", "/b", "/b"), row("NCCL_DEBUG", None, "INFO", "INFO"))
    plan = value_for_workers.plan(found(raylet_has_other_value, environment), environment)
    assert given(plan) == {"HF_HOME": ("/a", False)}

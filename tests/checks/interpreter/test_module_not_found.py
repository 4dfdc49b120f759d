"""Only a slip in a module's name is repaired: another program with a longer name is not what was meant."""

from __future__ import annotations

import pytest

from verl_doctor.checks.interpreter.module_not_found import module_not_found
from verl_doctor.toolkit.collectors.variables.program_module import ProgramModule
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(
    ("module", "there", "fix"),
    [
        ("ppo_main", "main_ppo", "script-module"),
        ("main_pppo", "main_ppo", "script-module"),
        ("fsdp_sft_trainer", "sft_trainer", "script-module"),
        ("main_generation", "main_generation_server", None),
        ("main_eval", "main_eval_async", None),
    ],
)
def test_only_a_slip_is_repaired(module: str, there: str, fix: str | None) -> None:
    program = ProgramModule(
        f"verl.trainer.{module}", "/r.sh", 3, "/verl", missing=True, programs=(f"verl.trainer.{there}",)
    )
    (found,) = run_check(module_not_found, program).findings
    assert (found.fix, found.subject.detail if found.subject else "") == (fix, f"verl.trainer.{there}")

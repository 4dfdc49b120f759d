"""The table of variables agrees with the rule about variables that nobody reads."""

from __future__ import annotations

import pytest

from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.commands.environment.variable_table import purposes


@pytest.mark.parametrize("name", ["RAY_num_prestart_python_workers", "VLLM_WORKER_USE_RAY"])
def test_no_effect_is_promised_of_a_variable_that_no_release_reads(name: str) -> None:
    assert what_became_of(name) is not None
    assert purposes()[name].startswith("has no effect")

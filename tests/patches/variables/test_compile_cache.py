"""Switching vLLM's compile cache off where it may be damaged, and on where it is sound."""

from __future__ import annotations

import pytest

from verl_doctor.patches.variables.compile_cache_off import compile_cache_off
from verl_doctor.patches.variables.compile_cache_on import compile_cache_on
from verl_doctor.toolkit.change import Fix, Refusal, SetVariable
from verl_doctor.toolkit.collectors.kernels.compile_cache import CompileCache
from verl_doctor.toolkit.rule import Evidence, Finding

FINDING = Finding("the cache", Evidence("as it is"))
OLD = CompileCache("2.9.1")
SOUND = CompileCache("2.11.0", "torch 2.11.0")


@pytest.mark.parametrize(
    ("fix", "fits", "value"), [(compile_cache_off, OLD, "1"), (compile_cache_on, SOUND, "0")]
)
def test_variable_has_an_end_condition(fix: Fix, fits: CompileCache, value: str) -> None:
    plan = fix.plan(FINDING, fits)
    assert isinstance(plan, list)
    (change,) = plan
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, bool(change.until)) == ("VLLM_DISABLE_COMPILE_CACHE", value, True)


@pytest.mark.parametrize(("fix", "other"), [(compile_cache_off, SOUND), (compile_cache_on, OLD)])
def test_opposite_situation_is_refused(fix: Fix, other: CompileCache) -> None:
    assert isinstance(fix.plan(FINDING, other), Refusal)

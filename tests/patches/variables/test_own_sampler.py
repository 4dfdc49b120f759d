"""The fix that keeps vLLM from a sampler that must be compiled."""

from __future__ import annotations

from verl_doctor.checks.kernels.flashinfer_sampler_not_compiled import flashinfer_sampler_not_compiled
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TORCH
from verl_doctor.patches.variables.own_sampler import own_sampler
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

NO_JOB = (Configuration, Unknown("no launch script was named"))


def test_variable_is_set_with_an_end_condition() -> None:
    (finding,) = run_check(flashinfer_sampler_not_compiled, H200(), SAMPLER(), TORCH, NO_JOB).findings
    (change,) = own_sampler.plan(finding, H200(), SAMPLER())
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == ("VLLM_USE_FLASHINFER_SAMPLER", "0")
    assert change.until == "flashinfer-jit-cache 0.6.12 is installed"


def test_vllm_that_ignores_the_variable_does_not_get_it() -> None:
    stubborn = SAMPLER(can_be_switched=False)
    (finding,) = run_check(flashinfer_sampler_not_compiled, H200(), stubborn, TORCH, NO_JOB).findings
    assert finding.fix is None
    assert "set VLLM" not in finding.remedy
    assert isinstance(own_sampler.plan(finding, H200(), stubborn), Refusal)


def test_suggested_wheel_fits_the_cuda_of_torch() -> None:
    (finding,) = run_check(flashinfer_sampler_not_compiled, H200(), SAMPLER(), TORCH, NO_JOB).findings
    assert finding.remedy.endswith("flashinfer-jit-cache==0.6.12 --index-url https://flashinfer.ai/whl/cu130")

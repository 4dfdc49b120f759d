"""An engine that is started instead of verl's gets verl's log probabilities."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.launch_values import KeyValue, LaunchValues
from verl_doctor.toolkit.collectors.vllm.rollout_logprobs import rollout_logprobs
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.facts import Absent

KEY = "actor_rollout_ref.rollout.logprobs_mode"
SAMPLER = VllmSampler("0.24.0", "/sampler.py", flashinfer=True, wanted_by_verl="processed_logprobs")


def job(value: object, *, known: bool = True) -> LaunchValues:
    return LaunchValues({KEY: KeyValue(KEY, value, known)})


def test_setting_of_the_job_overrides_that_of_verl() -> None:
    assert rollout_logprobs(SAMPLER, job("raw_logprobs")) == {"logprobs_mode": "raw_logprobs"}
    assert rollout_logprobs(SAMPLER, LaunchValues()) == {"logprobs_mode": "processed_logprobs"}


def test_null_or_unknown_setting_keeps_that_of_verl() -> None:
    assert rollout_logprobs(SAMPLER, job(None)) == {"logprobs_mode": "processed_logprobs"}
    assert rollout_logprobs(SAMPLER, job(None, known=False)) == {"logprobs_mode": "processed_logprobs"}


def test_verl_without_the_key_has_no_finding() -> None:
    old = VllmSampler("0.8.5", "/sampler.py", flashinfer=False)
    assert rollout_logprobs(old, LaunchValues()) == {}
    assert rollout_logprobs(Absent("this vLLM runs on cpu"), LaunchValues()) == {}

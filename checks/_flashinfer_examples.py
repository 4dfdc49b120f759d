"""Facts for the examples of the rules about FlashInfer: an H200 with a FlashInfer as pip installs it."""

from __future__ import annotations

from functools import partial

from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_flashinfer import FlashInfer
from verl_doctor.toolkit.fact_packages import Distribution, Packages
from verl_doctor.toolkit.fact_vllm_sampler import VllmSampler

H200 = partial(FlashInfer, "0.6.12", "/env/flashinfer", "9.0", "/home/me/.cache/flashinfer/0.6.12")
_CHOOSES = "/env/vllm/v1/sample/ops/topk_topp_sampler.py"
SAMPLER = partial(VllmSampler, "0.24.0", _CHOOSES, flashinfer=True)
PACKAGES = Packages((Distribution("torch", "2.11.0+cu130", "/env/torch"),))


def job(mode: str) -> Configuration:
    """A job that wants log probabilities of this mode."""
    tree = {"actor_rollout_ref": {"rollout": {"logprobs_mode": mode}}}
    return Configuration("main_ppo", "/env/verl/trainer/config", "ppo_trainer", (), tree, tree)

"""The algorithm's parts.

Estimator, losses, penalties; micro batches of the real lengths; trackers; the checkpoint to resume from.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.find import find, has, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stage_program import needs_critic, needs_reference
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_ACTOR = "actor_rollout_ref.actor"
_MOST_TALKS = 16
_CORE = "verl.trainer.ppo.core_algos"


@stage("algorithm", "import", "resolution")
def algorithm(job: Job) -> None:
    """Call the named functions on two numbers."""
    if job.kind != "ppo":
        raise NotNeededError("an SFT job has no estimator")
    find(f"{_CORE}:get_adv_estimator_fn")(_named(job, "algorithm.adv_estimator"))
    if has(f"{_CORE}:get_policy_loss_fn"):
        mode = _named(job, f"{_ACTOR}.policy_loss.loss_mode") or "vanilla"
        if mode != "vanilla" or "vanilla" in getattr(find(_CORE), "POLICY_LOSS_REGISTRY", ()):
            find(f"{_CORE}:get_policy_loss_fn")(mode)
    import torch

    ones = torch.ones(1, 2)
    if (way := _named(job, f"{_ACTOR}.loss_agg_mode")) is not None:
        aggregate = find(f"{_CORE}:agg_loss")
        aggregate(**taken(aggregate, {"loss_mat": ones, "loss_mask": ones, "loss_agg_mode": way}))
    penalty = find(f"{_CORE}:kl_penalty")
    if job.value(f"{_ACTOR}.use_kl_loss", default=False):
        loss = penalty(ones, ones, _named(job, f"{_ACTOR}.kl_loss_type"))
        _weighed(loss, job, f"{_ACTOR}.kl_loss_coef")
    if job.value("algorithm.use_kl_in_reward", default=False):
        penalty(ones, ones, _named(job, "algorithm.kl_penalty"))
        find(f"{_CORE}:get_kl_controller")(_named(job, "algorithm.kl_ctrl"))
        _weighed(ones, job, "algorithm.kl_ctrl.kl_coef")
    _weighed(ones, job, f"{_ACTOR}.entropy_coeff")
    if job.has("trainer.critic_warmup"):
        _ = _named(job, "trainer.critic_warmup") <= 1  # the trainer compares it with each step


def _weighed(loss: Any, job: Job, key: str) -> Any:
    """Multiply a loss by a setting, as each update does; as it is if the release has no such setting."""
    return loss * _named(job, key) if job.has(key) else loss


def _named(job: Job, key: str) -> Any:
    """Return the value of a setting, to which the next error is attributed."""
    job.notes["key"] = key
    return job.value(key)


@stage("micro batches", "agent loops")
def micro_batches(job: Job) -> None:
    """Build dynamic micro batches of the prompts' real lengths, with the shortest possible response."""
    import torch
    from tensordict import TensorDict

    split = find("verl.utils.seqlen_balancing:rearrange_micro_batches")
    keys = [(f"{_ACTOR}.use_dynamic_bsz", f"{_ACTOR}.ppo_max_token_len_per_gpu", _ACTOR)]
    rollout = "actor_rollout_ref.rollout"
    keys.append((f"{rollout}.log_prob_use_dynamic_bsz", f"{rollout}.log_prob_max_token_len_per_gpu", _ACTOR))
    if needs_reference(job):
        ref = "actor_rollout_ref.ref"
        keys.append((f"{ref}.log_prob_use_dynamic_bsz", f"{ref}.log_prob_max_token_len_per_gpu", ref))
    if needs_critic(job):
        keys.append(("critic.use_dynamic_bsz", "critic.ppo_max_token_len_per_gpu", "critic"))
    keys = [key for key in keys if job.value(key[0], default=False) and job.value(key[1])]
    if not keys:
        raise NotNeededError("the job has no dynamic micro batches")
    prompts = job.outputs.batch["prompts"].shape[1]
    longest = max(int(row[:prompts].sum()) for row in job.outputs.batch["attention_mask"]) + 1
    for _, key, part in keys:
        ranks = int(job.value(f"{part}.ulysses_sequence_parallel_size", 1))
        ids = torch.nested.as_nested_tensor([torch.ones(longest, dtype=torch.long)], layout=torch.jagged)
        flat = TensorDict({"input_ids": ids, "attention_mask": torch.ones(1, longest)}, batch_size=1)
        _named(job, key)
        split(flat, max_token_len=int(job.value(key)) * ranks)


@stage("micro batches of talks", "first batch", users=True)
def micro_batches_of_talks(job: Job) -> None:
    """Build dynamic micro batches of the first talks.

    Of the longest if the first step takes them all, else of the shortest.
    """
    if job.kind != "sft" or not job.value("data.use_dynamic_bsz", default=False):
        raise NotNeededError("the job has no dynamic micro batches of talks")
    import torch
    from tensordict import TensorDict

    split = find("verl.utils.seqlen_balancing:rearrange_micro_batches")
    rows = job.trainer.train_dataset
    count = min(len(rows), _MOST_TALKS)
    lengths = [int(rows[place]["input_ids"].shape[-1]) for place in range(count)]
    if not lengths:
        raise NotJudgedError("the training data have no rows")
    whole = "data.train_files" not in job.notes["partial"] and len(rows) <= min(
        count, int(job.value("data.train_batch_size"))
    )
    longest = max(lengths) if whole else min(lengths)
    ids = torch.nested.as_nested_tensor([torch.ones(longest, dtype=torch.long)], layout=torch.jagged)
    flat = TensorDict({"input_ids": ids, "attention_mask": torch.ones(1, longest)}, batch_size=1)
    ranks = int(job.value("engine.ulysses_sequence_parallel_size", 1))
    split(flat, max_token_len=int(_named(job, "data.max_token_len_per_gpu")) * ranks)


@stage("loss of talks", "first batch", users=True)
def loss_of_talks(job: Job) -> None:
    """Give verl's loss the first talk, and read what the engine reads of it."""
    if job.kind != "sft" or job.value("data.pad_mode") != "no_padding":
        raise NotNeededError("the job has no talks without padding")
    if job.value("engine.strategy") not in ("fsdp", "fsdp2"):
        raise NotJudgedError("another engine than FSDP reads the talks")
    import torch
    from tensordict import TensorDict

    loss = find("verl.workers.utils.losses:sft_loss")
    batch = next(iter(job.trainer.train_dataloader), None)
    if not isinstance(batch, dict):
        raise NotJudgedError("the training data have no batch of named tensors")
    tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
    data = TensorDict(tensors, batch_size=1)
    length = int(data["input_ids"].values().shape[0])
    for key in ("position_ids", "loss_mask"):  # the engine reads these, too
        _ = data[key]
    data["dp_size"], data["batch_num_tokens"] = torch.ones(1), torch.ones(1)
    log_probs = torch.nested.as_nested_tensor([torch.ones(length)], layout=torch.jagged)
    loss(config=None, model_output={"log_probs": log_probs}, data=data)


@stage("trackers", "import", "resolution", seconds=45)
def trackers(job: Job) -> None:
    """Construct verl's tracking with the job's trackers, without starting any."""
    named = job.value("trainer.logger")
    names = [named] if isinstance(named, str) else [str(name) for name in named or ()]
    if not names:
        raise NotNeededError("the job has no trackers")
    from omegaconf import OmegaConf

    tracking = find("verl.utils.tracking:Tracking")
    with ExitStack() as stack:
        for module in _packages(names):
            stack.enter_context(mock.patch.dict(sys.modules, {module: mock.MagicMock(name=module)}))
        tracking(
            project_name=job.value("trainer.project_name"),
            experiment_name=job.value("trainer.experiment_name"),
            default_backend=names,
            config=OmegaConf.to_container(job.config, resolve=True),
        )


_TRACKERS = {
    "wandb": ("wandb",),
    "tracking": ("wandb",),
    "mlflow": ("mlflow",),
    "swanlab": ("swanlab",),
    "vemlp_wandb": ("volcengine_ml_platform",),
    "clearml": ("clearml",),
    "trackio": ("trackio", "trackio.context_vars"),
    "tensorboard": ("torch.utils.tensorboard",),
    "rl_insight": ("rl_insight",),
}


def _packages(names: list[str]) -> list[str]:
    """Return the installed modules that these trackers import. If one is missing, verl reports the error."""
    found: list[str] = []
    for name in names:
        modules = _TRACKERS.get(name, ())
        installed = "tensorboard" if name == "tensorboard" else modules[0] if modules else ""
        if installed and importlib.util.find_spec(installed.partition(".")[0]) is not None:
            found += modules
    return found


@stage("resuming", "data sets")
def resuming(job: Job) -> None:
    """Find the checkpoint that the job resumes from, as the trainer does."""
    trainer = job.trainer
    if job.kind != "ppo" or not hasattr(trainer, "_load_checkpoint"):
        raise NotHereError("the trainer of this job finds its checkpoint elsewhere")
    if job.value("trainer.resume_mode") == "disable":
        raise NotNeededError("the job does not resume")
    loads = _Loads()
    for name in ("actor_rollout_wg", "critic_wg", "ref_policy_wg", "rm_wg"):
        setattr(trainer, name, loads)
    trainer.use_critic = needs_critic(job)
    if not hasattr(trainer, "train_dataloader"):
        raise NotJudgedError("the trainer has no loader here")
    real = trainer.train_dataloader
    trainer.train_dataloader = mock.MagicMock()
    try:
        trainer._load_checkpoint()
    finally:
        trainer.train_dataloader = real


class _Loads:
    """Stands in for a group of workers that loads a checkpoint: the folder must exist."""

    def load_checkpoint(self, local_path: Any = None, *_: Any, **__: Any) -> None:
        """Raise FileNotFoundError if the folder does not exist."""
        if isinstance(local_path, str) and not os.path.isdir(local_path):
            raise FileNotFoundError(2, "there is no checkpoint", local_path)

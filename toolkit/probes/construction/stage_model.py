"""The classes of the configuration, the model's configuration, its tokenizer and its processor."""

from __future__ import annotations

import os
from typing import Any

from verl_doctor.toolkit.probes.construction.find import called, find, has, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stage_program import needs_critic, needs_reference
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_REMOTE = ("hdfs://", "s3://", "gs://", "oss://", "tos://", "http://", "https://")


@stage("model", "resolution", seconds=60)
def model(job: Job) -> None:
    """Load the model's configuration, its tokenizer and processor, as the trainer does."""
    section = "actor_rollout_ref.model" if job.kind == "ppo" else "model"
    path = job.value(f"{section}.path") or job.value(f"{section}.partial_pretrain")
    if isinstance(path, str) and path.startswith(_REMOTE):
        raise NotJudgedError(f"the model is at {path}, and nothing is fetched here")
    job.set(f"{section}.use_shm", value=False)
    loaded = _of_class(job, section) if _has_class(job, section) else _of_path(job, section, path)
    job.model_config = loaded
    job.tokenizer, job.processor = loaded.tokenizer, loaded.processor
    job.hf_config, job.local_path = loaded.hf_config, str(loaded.local_path)


@stage("critic's model", "resolution")
def critic_model(job: Job) -> None:
    """Load what the critic trains, if the algorithm has one."""
    if job.kind != "ppo" or not needs_critic(job):
        raise NotNeededError("the job trains no critic")
    if isinstance(path := job.value("critic.model.path"), str) and path.startswith(_REMOTE):
        raise NotJudgedError(f"the critic is at {path}, and nothing is fetched here")
    job.set("critic.model.use_shm", value=False)
    if not _has_class(job, "critic"):
        _of_path(job, "critic.model", job.value("critic.model.path"))
        return
    convert(job, "critic")
    if _has_class(job, "critic.model"):
        convert(job, "critic.model")


@stage("reward model", "resolution")
def reward_model(job: Job) -> None:
    """Load the tokenizer and configuration of the reward model, if there is one."""
    section = next((key for key in ("reward.reward_model", "reward_model") if job.has(key)), "")
    if not section or not job.value(f"{section}.enable", default=False):
        raise NotNeededError("the job has no reward model")
    path = job.value(f"{section}.model_path") or job.value(f"{section}.model.path")
    if not isinstance(path, str) or path.startswith(_REMOTE):
        raise NotJudgedError(f"the reward model is at {path}, and nothing is fetched here")
    local = find("verl.utils.fs:copy_to_local")(path)
    find("verl.utils:hf_tokenizer")(local, trust_remote_code=True)
    _automatic_config(local, trust=True)


@stage("configuration classes", "resolution")
def classes(job: Job) -> None:
    """Convert every section that the trainer and its workers turn into one of verl's classes."""
    from omegaconf import OmegaConf

    if not has("verl.utils.config:omega_conf_to_dataclass"):
        raise NotHereError("this release has no classes of configuration")
    if job.kind == "ppo":
        sections = ["actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"]
        if needs_reference(job):
            sections.append("actor_rollout_ref.ref")
        if job.value("distillation.enabled", default=False):
            sections.append("distillation")
    else:
        sections = ["optim", "engine", "checkpoint", "profiler"]
    present = [key for key in sections if _has_class(job, key)]
    if not present:
        raise NotHereError("this release has no classes of configuration")
    config = job.config
    for key in present:
        section = OmegaConf.create(
            OmegaConf.to_container(OmegaConf.select(config, key), resolve=True)
        )  # the ref of a worker is changed before conversion
        if key.endswith(".ref"):
            _as_worker(section, OmegaConf.select(config, "actor_rollout_ref.actor"))
        find("verl.utils.config:omega_conf_to_dataclass")(section)


def _as_worker(ref: Any, actor: Any) -> None:
    """Rename the reference's settings as the actor's, as the worker does (verl/workers/engine_workers.py)."""
    if "ppo_mini_batch_size" not in ref and not has("verl.workers.engine_workers:ActorRolloutRefWorker"):
        raise NotHereError("this release has no separate section for the reference")
    ref.ppo_mini_batch_size = actor.ppo_mini_batch_size
    for name, old in (
        ("ppo_micro_batch_size", "log_prob_micro_batch_size"),
        ("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu"),
        ("use_dynamic_bsz", "log_prob_use_dynamic_bsz"),
        ("ppo_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu"),
    ):
        ref[name] = ref.pop(old, False if name == "use_dynamic_bsz" else None)


def critic_config(job: Job, workers: Any) -> Any:
    """Return the critic's configuration as the trainer builds it (verl/trainer/ppo/v1/trainer_base.py)."""
    section = find("verl.utils.config:omega_conf_to_dataclass")(copied(job, "critic"))
    cls = workers.TrainingWorkerConfig
    given = {
        "model_type": "value_model",
        "model_config": getattr(section, "model_config", None) or section.model,
        "engine_config": section.engine,
        "optimizer_config": section.optim,
        "checkpoint_config": section.checkpoint,
        "profiler_config": None,
    }
    return cls(**taken(cls.__init__, given))


def copied(job: Job, key: str) -> Any:
    """Return a copy of a section, which workers may change."""
    from omegaconf import OmegaConf

    return OmegaConf.create(OmegaConf.to_container(OmegaConf.select(job.config, key), resolve=True))


def convert(job: Job, key: str) -> Any:
    """Return a section as the object of its class."""
    from omegaconf import OmegaConf

    return find("verl.utils.config:omega_conf_to_dataclass")(OmegaConf.select(job.config, key))


def _has_class(job: Job, key: str) -> bool:
    return bool(job.has(f"{key}._target_") and job.value(f"{key}._target_"))


def _of_class(job: Job, section: str) -> Any:
    return convert(job, section)


class _Loaded:
    """Bundles what a release without a model class keeps in several variables."""

    def __init__(self, local_path: str, tokenizer: Any, processor: Any, hf_config: Any) -> None:
        self.local_path, self.tokenizer = local_path, tokenizer
        self.processor, self.hf_config = processor, hf_config


def _of_path(job: Job, section: str, path: Any) -> _Loaded:
    local = find("verl.utils.fs:copy_to_local")(path)
    trust = bool(
        job.value(f"{section}.trust_remote_code", job.value("data.trust_remote_code", default=False))
    )
    tokenizer = find("verl.utils:hf_tokenizer", "verl.utils.tokenizer:hf_tokenizer")(
        local, trust_remote_code=trust
    )
    processor = None
    if has("verl.utils:hf_processor"):
        processor = called(find("verl.utils:hf_processor"), name_or_path=local, use_fast=True)
    return _Loaded(local, tokenizer, processor, _automatic_config(local, trust=trust))


def _automatic_config(local: str, *, trust: bool) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(os.path.expanduser(local), trust_remote_code=trust)  # noqa: PTH111

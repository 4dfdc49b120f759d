"""What one small training step requires of verl's configuration, and why.

There are requirements on any device, on a GPU, and without one.

Keys are tried in the order given, because releases of verl rename them. A key that the installed release
lacks is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

RAY_CPUS = 32
"""The number of CPUs given to Ray.

One is reserved by verl for each helper, most of which wait; a laptop has fewer cores.
"""

_ARL = "actor_rollout_ref"
_SIZE = "size: one small step"
_ONE_DEVICE = "device: there is one"
_NO_GPU = "device: it needs a GPU"


@dataclass(frozen=True)
class RequiredValue:
    """A required value. `keys` are the names that it has had, the newest first.

    `most`: a smaller requested number stays. `hidden`: verl's configuration files need not have the key if
    its sources contain the name. `passed_on`: the key's whole section is passed to another library, so the
    key need not exist. `only_if_set` alone: required only if the script sets the key.
    """

    keys: tuple[str, ...]
    value: Any
    why: str
    most: bool = False
    hidden: bool = False
    passed_on: bool = False
    only_if_set: bool = False


@dataclass(frozen=True)
class Files:
    """The files that the step reads, and where it may write.

    `reward` has `compute_score`, None for the script's own or verl's.

    `own_model`: the user has named it.
    """

    model: Path
    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    folder: Path
    reward: Path | None = None
    own_model: bool = False


def sizes(*, own: bool) -> list[RequiredValue]:
    """Return the sizes of one small step.

    It is one step on two prompts with two responses each, on one device, without saving or reporting.

    Mandatory settings that the script lacks stay unset: only without a script (`own`) are micro batches
    always set.
    """
    small = [
        ("data.gen_batch_size", 2),
        ("data.max_prompt_length", 512),
        ("data.max_response_length", 32),
        (f"{_ARL}.rollout.prompt_length", 512),
        (f"{_ARL}.rollout.response_length", 32),
        (f"{_ARL}.rollout.n", 2),
        (f"{_ARL}.rollout.max_num_seqs", 64),
        (f"{_ARL}.rollout.agent.num_workers", 1),
        (f"{_ARL}.actor.ppo_micro_batch_size", 1),
        (f"{_ARL}.rollout.log_prob_micro_batch_size", 1),
        (f"{_ARL}.ref.log_prob_micro_batch_size", 1),
        ("critic.ppo_micro_batch_size", 1),
        ("trainer.total_epochs", 1),
    ]
    together = [
        ("data.train_batch_size", 2),
        (f"{_ARL}.actor.ppo_mini_batch_size", 2),
        ("critic.ppo_mini_batch_size", 2),
    ]
    micro = [
        f"{_ARL}.actor.ppo_micro_batch_size_per_gpu",
        f"{_ARL}.rollout.log_prob_micro_batch_size_per_gpu",
        f"{_ARL}.ref.log_prob_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
    ]
    fixed = [
        ("trainer.total_training_steps", 1),
        ("trainer.save_freq", -1),
        ("trainer.test_freq", -1),
        ("trainer.val_before_train", False),
        ("trainer.val_only", False),
        ("trainer.resume_mode", "disable"),
        ("algorithm.filter_groups.enable", False),
        ("data.filter_overlong_prompts", False),
        ("data.truncation", "left"),
        ("data.dataloader_num_workers", 0),
    ]
    single = [
        ("trainer.n_gpus_per_node", 1),
        ("trainer.nnodes", 1),
        (f"{_ARL}.rollout.tensor_model_parallel_size", 1),
        (f"{_ARL}.rollout.data_parallel_size", 1),
        (f"{_ARL}.rollout.expert_parallel_size", 1),
        (f"{_ARL}.rollout.pipeline_model_parallel_size", 1),
        (f"{_ARL}.actor.ulysses_sequence_parallel_size", 1),
        (f"{_ARL}.actor.fsdp_config.ulysses_sequence_parallel_size", 1),
        (f"{_ARL}.ref.ulysses_sequence_parallel_size", 1),
    ]
    return [
        *(RequiredValue((key,), value, _SIZE, most=True) for key, value in small),
        *(RequiredValue((key,), value, _SIZE) for key, value in (*together, *fixed)),
        *(RequiredValue((key,), 1, _SIZE, most=not own) for key in micro),
        RequiredValue(
            (f"{_ARL}.rollout.max_model_len",),
            None,
            f"{_SIZE}: as long as prompt and answer",
            only_if_set=True,
        ),
        *(RequiredValue((key,), value, _ONE_DEVICE) for key, value in single),
        *(
            RequiredValue((f"{_ARL}.{part}.fsdp_config.fsdp_size",), -1, _ONE_DEVICE, only_if_set=True)
            for part in ("actor", "ref")
        ),
        RequiredValue(("reward.num_workers", "reward_model.num_workers"), 1, _SIZE, most=True),
        RequiredValue(("trainer.logger",), ["console"], "a rehearsal is not reported to anybody"),
        RequiredValue(("trainer.v1.trainer_mode",), "sync", _ONE_DEVICE),
        RequiredValue(
            ("ray_kwargs.ray_init.address",), None, "Ray: one of the rehearsal's own", only_if_set=True
        ),
        RequiredValue(
            ("transfer_queue.backend.SimpleStorage.num_data_storage_units",),
            1,
            "size: each takes one of Ray's CPUs",
        ),
    ]


def files(given: Files) -> list[RequiredValue]:
    """Return the model, the data, and private folders for everything that verl writes."""
    own = "files: of the rehearsal's own folder"
    model = "model: the user's own" if given.own_model else "model: a tiny one"
    required_values = [
        RequiredValue((f"{_ARL}.model.path",), str(given.model), model),
        RequiredValue((f"{_ARL}.model.tokenizer_path",), None, "model: a tiny one", only_if_set=True),
        RequiredValue(("critic.model.path",), str(given.model), model),
        RequiredValue(("critic.model.tokenizer_path",), str(given.model), model),
        RequiredValue(("data.train_files",), [*map(str, given.train)], "data: its first rows"),
        RequiredValue(("data.val_files",), [*map(str, given.validation)], "data: its first rows"),
        RequiredValue(("trainer.default_local_dir",), str(given.folder / "checkpoints"), own),
        RequiredValue(("trainer.default_hdfs_dir",), None, own),
        RequiredValue(("trainer.rollout_data_dir",), None, own),
        RequiredValue(("trainer.validation_data_dir",), None, own),
    ]
    if given.reward is not None:
        rewards = ("reward.custom_reward_function", "custom_reward_function")
        required_values += [
            RequiredValue(
                tuple(f"{key}.path" for key in rewards),
                str(given.reward),
                "reward: one that differs between answers",
            ),
            RequiredValue(
                tuple(f"{key}.name" for key in rewards),
                "compute_score",
                "reward: one that differs between answers",
            ),
            RequiredValue(
                (f"{_ARL}.actor.optim.lr",), 0.01, "size: large enough to move weights in bfloat16"
            ),
        ]
    return required_values


def without_flash_attention() -> list[RequiredValue]:
    """Return the settings that need no package besides torch."""
    return [
        RequiredValue(
            (f"{_ARL}.model.use_remove_padding",), False, "attention: removing the padding needs flash-attn"
        ),
        RequiredValue(
            ("critic.model.use_remove_padding",), False, "attention: removing the padding needs flash-attn"
        ),
        RequiredValue(
            (f"{_ARL}.model.override_config.attn_implementation",),
            "sdpa",
            "attention: torch's own",
            hidden=True,
        ),
        RequiredValue(
            ("critic.model.override_config.attn_implementation",),
            "sdpa",
            "attention: torch's own",
            hidden=True,
        ),
    ]


def on_gpu(*, own: bool) -> list[RequiredValue]:
    """Return the settings for a GPU: as little memory as a tiny model needs, no graph capture.

    A script must name its rollout itself.
    """
    return [
        *(
            [RequiredValue((f"{_ARL}.rollout.name",), "vllm", "rollout: verl 0.9 has no default")]
            if own
            else ()
        ),
        RequiredValue((f"{_ARL}.rollout.gpu_memory_utilization",), 0.2, _SIZE, most=True),
        RequiredValue((f"{_ARL}.rollout.enforce_eager",), True, _SIZE),
    ]


def on_cpu(*, own: bool) -> list[RequiredValue]:
    """Return what verl and vLLM do on CPUs instead of on a GPU. A script must name its rollout itself."""
    off = [
        (f"{_ARL}.rollout.free_cache_engine", "device: vLLM's CPU build has no sleep mode"),
        (f"{_ARL}.model.use_fused_kernels", _NO_GPU),
        (f"{_ARL}.model.use_liger", _NO_GPU),
        (
            f"{_ARL}.actor.use_torch_compile",
            "device: it would compile with a C++ compiler, for longer than the step",
        ),
        (
            f"{_ARL}.actor.fsdp_config.use_torch_compile",
            "device: it would compile with a C++ compiler, for longer than the step",
        ),
        (f"{_ARL}.actor.fsdp_config.param_offload", "device: there is nothing to move it off from"),
        (f"{_ARL}.actor.fsdp_config.optimizer_offload", "device: there is nothing to move it off from"),
        (f"{_ARL}.ref.fsdp_config.param_offload", "device: there is nothing to move it off from"),
        ("reward.reward_model.enable", "model: a reward model would be a second large one"),
        ("reward_model.enable", "model: a reward model would be a second large one"),
    ]
    return [
        RequiredValue(("trainer.device",), "cpu", "device"),
        RequiredValue((f"{_ARL}.actor.strategy",), "fsdp2", "device: fully_shard alone works on processors"),
        RequiredValue((f"{_ARL}.ref.strategy",), "fsdp2", "device: fully_shard alone works on processors"),
        RequiredValue(("critic.strategy",), "fsdp2", "device: fully_shard alone works on processors"),
        RequiredValue(
            (f"{_ARL}.rollout.name",), "vllm", "device: the rollout that has a CPU build", only_if_set=not own
        ),
        RequiredValue((f"{_ARL}.rollout.enforce_eager",), True, _NO_GPU),
        RequiredValue(
            (f"{_ARL}.rollout.enable_sleep_mode",),
            False,
            "device: vLLM's CPU build has no sleep mode",
            hidden=True,
        ),
        RequiredValue((f"{_ARL}.rollout.gpu_memory_utilization",), 0.3, _SIZE, most=True),
        RequiredValue((f"{_ARL}.rollout.quantization",), None, _NO_GPU),
        RequiredValue((f"{_ARL}.rollout.engine_kwargs.vllm",), {}, "device: it may concern GPUs"),
        RequiredValue((f"{_ARL}.rollout.checkpoint_engine.backend",), "naive", _NO_GPU),
        RequiredValue(("global_profiler.tool",), None, _NO_GPU),
        RequiredValue(
            ("ray_kwargs.ray_init.num_cpus",), RAY_CPUS, "Ray: verl's helpers take one each, and most wait"
        ),
        RequiredValue(
            ("ray_kwargs.ray_init.num_gpus",),
            1,
            "Ray: verl requests GPUs and gets a processor",
            passed_on=True,
        ),
        RequiredValue(
            ("ray_kwargs.ray_init.include_dashboard",),
            False,
            "Ray: a dozen processes that are not needed",
            passed_on=True,
        ),
        *(RequiredValue((key,), False, why) for key, why in off),
        *without_flash_attention(),
    ]

"""The stage of a step, or of the start, in which a GPU ran out of memory: the remedy depends on it.

The innermost known function on the stack decides: those of verl 0.2 to 0.9.1, vLLM and SGLang. Ray also names
an actor's method in the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from verl_doctor.toolkit.logs.python_errors import Raised

STAGES: Final[Mapping[str, str]] = {
    "load": "while the model was loaded",
    "engine": "while the engine started",
    "wake": "while the engine woke up and took the new weights",
    "rollout": "in the rollout",
    "log_prob": "while log probabilities were computed",
    "update": "in the update of the model",
    "checkpoint": "while a checkpoint was written",
}
"""The name of each stage in prose."""

_FUNCTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("init_model", "_build_model_optimizer", "from_pretrained", "_build_critic_model_optimizer"), "load"
    ),
    **dict.fromkeys(
        (
            "determine_available_memory",
            "profile_run",
            "initialize_kv_cache",
            "initialize_kv_caches",
            "_initialize_kv_caches",
            "initialize_from_config",
            "determine_num_available_blocks",
            "capture_model",
            "compile_or_warm_up_model",
            "launch_server",
            "launch_servers",
            "init_memory_pool",
            "init_device_graphs",
            "init_cuda_graphs",
            "capture",
            "load_weights",
            "_build_rollout",
            "make_async_mp_client",
            "warming_up_model",
            "kernel_warmup",
        ),
        "engine",
    ),
    **dict.fromkeys(
        (
            "wake_up",
            "resume",
            "resume_memory_occupation",
            "update_weights",
            "update_params",
            "sync_weights",
            "rollout_mode",
            "sync_rollout_weights",
            "sync_model_weights",
            "full_params",
            "resume_kv_cache",
            "create_and_map",
            "update_weights_from_tensor",
            "update_weights_from_ipc",
        ),
        "wake",
    ),
    **dict.fromkeys(
        (
            "generate_sequences",
            "generate",
            "execute_model",
            "async_generate",
            "_generate",
            "forward_batch_generation",
        ),
        "rollout",
    ),
    **dict.fromkeys(
        (
            "compute_log_prob",
            "compute_ref_log_prob",
            "compute_values",
            "compute_rm_score",
            "_compute_old_log_prob",
            "_compute_ref_log_prob",
            "infer_batch",
        ),
        "log_prob",
    ),
    **dict.fromkeys(
        (
            "update_actor",
            "update_critic",
            "update_policy",
            "_update_actor",
            "train_mini_batch",
            "train_batch",
            "optimizer_step",
            "_optimizer_step",
            "training_step",
            "backward",
            "_engine_run_backward",
            "train_actor",
            "train_critic",
        ),
        "update",
    ),
    **dict.fromkeys(
        ("save_checkpoint", "_save_checkpoint", "load_checkpoint", "_save_model", "save_hf_model"),
        "checkpoint",
    ),
}
_REMOTE = re.compile(r"ray::[\w.<>:]*?\.(\w+)\(")
_OF_GROUP = ("actor_rollout_ref_", "actor_rollout_", "rollout_", "critic_", "ref_", "rm_", "actor_")


def stage_of(raised: Raised) -> str:
    """Return the stage in which an exception, or an earlier one in its chain, was raised, else "".

    "" means that no function shows it.
    """
    inner = list(raised.chain)[::-1]
    names = [frame.function for each in inner for frame in reversed(each.frames)]
    names += [_of_actor(name) for each in inner for name in _REMOTE.findall(each.message)]
    found = [stage for name in names if (stage := _FUNCTIONS.get(name))]
    return next(iter(found), "")


def _of_actor(name: str) -> str:
    """Return a worker's method without the group name that verl puts before it."""
    return next(
        (
            name.removeprefix(group)
            for group in _OF_GROUP
            if name.startswith(group) and name.removeprefix(group) in _FUNCTIONS
        ),
        name,
    )

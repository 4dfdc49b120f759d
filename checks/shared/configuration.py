"""Shared by the rules about the job's configuration: keys, word locations, a mini verl tree for examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import (
    MISSING,
    Configuration,
    OverrideWord,
    with_overrides,
)
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Word
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Location, Severity

GPUS = "trainer.n_gpus_per_node"
NODES = "trainer.nnodes"
WORKERS = "actor_rollout_ref.rollout.agent.num_workers"
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"

SCRIPT = "/home/me/run.sh"
TREE: Mapping[str, Any] = {
    "actor_rollout_ref": {
        "model": {
            "path": "~/models/x",
            "override_config": {},
            "use_remove_padding": True,
            "use_shm": False,
            "lora_rank": 0,
        },
        "actor": {
            "strategy": "fsdp",
            "use_dynamic_bsz": False,
            "use_kl_loss": False,
            "entropy_coeff": 0,
            "ppo_mini_batch_size": 256,
            "ppo_micro_batch_size": None,
            "ppo_micro_batch_size_per_gpu": 4,
            "ulysses_sequence_parallel_size": 1,
            "optim": {"lr": 1e-6},
            "fsdp_config": {"param_offload": False, "optimizer_offload": False},
        },
        "ref": {"log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": 4},
        "rollout": {
            "name": "vllm",
            "n": 1,
            "temperature": 1.0,
            "enforce_eager": True,
            "gpu_memory_utilization": 0.5,
            "load_format": "dummy",
            "max_num_seqs": 1024,
            "max_num_batched_tokens": 8192,
            "tensor_model_parallel_size": 2,
            "log_prob_micro_batch_size": None,
            "log_prob_micro_batch_size_per_gpu": 4,
            "agent": {"num_workers": 8},
            "engine_kwargs": {"vllm": {}},
            "val_kwargs": {"do_sample": False},
        },
    },
    "critic": {"enable": None},
    "data": {"train_files": "~/train.parquet", "train_batch_size": 1024, "max_prompt_length": 512},
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
    "ray_kwargs": {"ray_init": {"num_cpus": None}},
    "trainer": {"nnodes": 1, "n_gpus_per_node": 8, "logger": ["console", "wandb"], "total_epochs": 30},
}


def configured(*words: str, verl: str = "0.6.1", tree: Mapping[str, Any] = TREE) -> tuple[Configuration]:
    """The facts of an example: a miniature, with these overrides from the lines of a script."""
    configuration = Configuration(
        program="/env/verl/trainer/main_ppo.py",
        folder="/env/verl/trainer/config",
        name="ppo_trainer",
        before=tree,
        verl=verl,
    )
    return (
        with_overrides(
            configuration, [Word(text=text, path=SCRIPT, line=line) for line, text in enumerate(words, 2)]
        ),
    )


def composed(tree: Mapping[str, Any]) -> Configuration:
    """A job of main_ppo with exactly this configuration."""
    return Configuration(
        program="main_ppo",
        folder="/env/verl/trainer/config",
        name="ppo_trainer",
        overrides=(),
        before=tree,
        after=tree,
    )


def with_rollout(**settings: Any) -> Configuration:
    """A job of main_ppo whose configuration consists of these settings of the rollout."""
    return composed({"actor_rollout_ref": {"rollout": settings}})


def number_of(configuration: Configuration | Unknown, key: str) -> int:
    """A whole number of the job's configuration; 0 if unknown."""
    return 0 if isinstance(configuration, Unknown) else int(configuration.number(key) or 0)


_AGENT = "actor_rollout_ref.rollout.agent"
# The user's own code, which may make prompts and rows, or read them.
_OWN_PROMPTS = (
    "data.custom_cls.path",
    "actor_rollout_ref.rollout.chat_scheduler",
    f"{_AGENT}.agent_loop_config_path",
    f"{_AGENT}.agent_loop_manager_class",
    f"{_AGENT}.default_agent_loop",
    "actor_rollout_ref.model.external_lib",
    "model.external_lib",
)
_OF_VERL = ("single_turn_agent", "tool_agent")


def own_prompts(configuration: Configuration) -> str:
    """The first setting that names code of the user's own for prompts; empty if there is none."""
    unset = (None, MISSING, *_OF_VERL)
    return next((key for key in _OWN_PROMPTS if configuration.get(key) not in unset), "")


def place(word: OverrideWord) -> Location:
    """The location of a word. A command line has no line numbers."""
    return Location(word.path, None if word.path == COMMAND_LINE else word.line)


def severity_of(word: OverrideWord) -> Severity | None:
    """The severity of a fault in a word.

    It is a warning if an undecided condition of the script adds the word, otherwise the rule's.
    """
    return "warning" if word.conditional else None


def if_added(word: OverrideWord) -> str:
    """The end of a message about a word."""
    return ", which a condition of the script adds" if word.conditional else ""


def release(configuration: Configuration) -> str:
    """The release, "verl 0.6.1", or "this verl" if the tree does not state its version."""
    return f"verl {configuration.verl}" if configuration.verl else "this verl"


def tree_of(configuration: Configuration) -> str:
    """The files from which the configuration was read."""
    return f"{configuration.folder}/{configuration.name}.yaml and what it is composed of"

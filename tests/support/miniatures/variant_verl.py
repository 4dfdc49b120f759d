"""A verl of one configuration file: the keys that variants change, with the values that released verl gives them."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.launch.launch import Word

MAIN = """\
import hydra

@hydra.main(config_path="config", config_name="ppo_trainer", version_base=None)
def main(config):
    run(config)

if __name__ == "__main__":
    main()
"""
TREE = {
    "actor_rollout_ref": {
        "hybrid_engine": True,
        "model": {"path": "~/models/x", "lora_rank": 0, "use_shm": False},
        "actor": {
            "strategy": "fsdp",
            "use_dynamic_bsz": False,
            "ppo_mini_batch_size": 256,
            "ppo_micro_batch_size": None,
            "ppo_micro_batch_size_per_gpu": None,
            "ulysses_sequence_parallel_size": 1,
            "megatron": {
                "tensor_model_parallel_size": 1,
                "pipeline_model_parallel_size": 1,
                "context_parallel_size": 1,
            },
        },
        "ref": {
            "log_prob_micro_batch_size": None,
            "log_prob_micro_batch_size_per_gpu": None,
            "log_prob_use_dynamic_bsz": "${actor_rollout_ref.actor.use_dynamic_bsz}",
        },
        "rollout": {
            "name": "vllm",
            "mode": "async",
            "n": 1,
            "enforce_eager": False,
            "gpu_memory_utilization": 0.5,
            "load_format": "dummy",
            "response_length": "${data.max_response_length}",
            "log_prob_micro_batch_size": None,
            "log_prob_micro_batch_size_per_gpu": None,
            "log_prob_use_dynamic_bsz": "${actor_rollout_ref.actor.use_dynamic_bsz}",
            "tensor_model_parallel_size": 2,
            "multi_turn": {"enable": False},
            "agent": {"num_workers": 8},
            "engine_kwargs": {"vllm": {}},
        },
    },
    "algorithm": {"adv_estimator": "gae", "filter_groups": {"enable": False}},
    "critic": {
        "enable": None,
        "use_dynamic_bsz": False,
        "ppo_mini_batch_size": "${actor_rollout_ref.actor.ppo_mini_batch_size}",
        "ppo_micro_batch_size": None,
        "ppo_micro_batch_size_per_gpu": None,
        "forward_micro_batch_size_per_gpu": "${critic.ppo_micro_batch_size_per_gpu}",
    },
    "data": {
        "train_files": "~/data/train.parquet",
        "val_files": "~/data/test.parquet",
        "train_batch_size": 1024,
        "gen_batch_size": None,
        "max_prompt_length": 512,
        "max_response_length": 512,
        "dataloader_num_workers": 8,
    },
    "trainer": {
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "total_epochs": 30,
        "total_training_steps": None,
        "logger": ["console", "wandb"],
        "save_freq": -1,
        "test_freq": -1,
        "val_before_train": True,
        "val_only": False,
        "resume_mode": "auto",
        "rollout_data_dir": None,
    },
}


def variant_verl(folder: Path) -> Path:
    """Write it below a folder, and return the package folder."""
    import yaml

    package = folder / "verl"
    (package / "trainer/config").mkdir(parents=True)
    (package / "workers").mkdir()
    for inside in (package, package / "trainer", package / "workers"):
        (inside / "__init__.py").write_text('__version__ = "0.9.1"\n' if inside == package else "")
    (package / "trainer/main_ppo.py").write_text(MAIN)
    (package / "trainer/config/ppo_trainer.yaml").write_text(yaml.safe_dump(TREE, sort_keys=False))
    return package


def composed(*words: str) -> Configuration:
    """Its configuration, with these overrides."""
    tree = Configuration(
        "/env/verl/trainer/main_ppo.py", "/env/verl/trainer/config", "ppo_trainer", before=TREE
    )
    return with_overrides(
        tree, [Word(text, "/home/me/run.sh", line, text) for line, text in enumerate(words, 2)]
    )

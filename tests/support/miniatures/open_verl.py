"""A verl of a few lines that has a place for platforms, a trainer and its configuration, as the real one does."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "__init__.py": 'modules = os.getenv("VERL_USE_EXTERNAL_MODULES", "")\n',
    "plugin/platform/platform_manager.py": 'name = os.environ.get("VERL_PLATFORM")\n',
    "workers/engine/base.py": 'device = os.getenv("VERL_ENGINE_DEVICE")\n',
    "workers/config.py": "enable_sleep_mode: bool = True\n",
    "plugin/platform/platform_base.py": """
class PlatformBase(abc.ABC):
    @property
    @abc.abstractmethod
    def device_name(self): ...
    @abc.abstractmethod
    def device_count(self): ...
    def get_device_uuid(self, device_id): ...
""",
    "trainer/main_ppo.py": """
@hydra.main(config_path="config", config_name="ppo_trainer")
def main(config):
    run(config)
""",
    "trainer/config/ppo_trainer.yaml": """
data: {train_files: train.jsonl, val_files: train.jsonl, prompt_key: prompt, train_batch_size: 1024}
actor_rollout_ref:
  model: {path: null}
  actor: {strategy: fsdp, optim: {lr: 1.0e-6}}
  rollout: {name: "???", n: 1}
custom_reward_function: {path: null, name: compute_score}
trainer: {device: cuda, n_gpus_per_node: 8}
""",
}


def open_verl(folder: Path, **changed: str) -> Path:
    """Write it below a folder, some of its files with another text, and return the package's folder."""
    for name, text in {**FILES, **changed}.items():
        path = folder / "verl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "verl"

"""A verl so small that its construction takes no time, with the libraries that it is made of: Hydra, OmegaConf, Ray, transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

_LIBRARIES: Mapping[str, str] = {
    "omegaconf.py": """
        import contextlib, copy

        class Node(dict):
            def __getattr__(self, name):
                if name not in self:
                    raise AttributeError(name)
                return self[name]
            def _get_node(self, name):
                return self[name]

        class OmegaConf:
            @staticmethod
            def is_dict(node):
                return isinstance(node, Node)
            is_config = is_dict
            @staticmethod
            def select(node, key, default=None):
                for step in key.split("."):
                    if not isinstance(node, dict) or step not in node:
                        return default
                    node = node[step]
                return node
            @staticmethod
            def update(node, key, value):
                *above, last = key.split(".")
                for step in above:
                    node = node[step]
                node[last] = value
            @staticmethod
            def to_container(node, resolve=True):
                return copy.deepcopy(node)
            @staticmethod
            def create(node):
                return node
            @staticmethod
            def clear_resolver(name):
                return False
            @staticmethod
            def to_yaml(node):
                return str(node)

        def open_dict(node):
            return contextlib.nullcontext()
        """,
    "hydra.py": """
        import contextlib, json, pathlib
        from omegaconf import Node, OmegaConf

        def initialize_config_dir(config_dir, version_base):
            global FOLDER
            FOLDER = config_dir
            return contextlib.nullcontext()

        def compose(config_name, overrides, return_hydra_config=False):
            text = pathlib.Path(FOLDER, config_name + ".json").read_text()
            config = json.loads(text, object_hook=Node)
            for word in overrides:
                key, _, value = word.partition("=")
                OmegaConf.update(config, key, value)
            return config
        """,
    "ray.py": "def init(): pass\n",
    "transformers.py": """
        class AutoConfig:
            @staticmethod
            def from_pretrained(path, trust_remote_code=False):
                return object()
        """,
}

_VERL: Mapping[str, str] = {
    "verl/__init__.py": "",
    "verl/trainer/__init__.py": "",
    "verl/trainer/main_ppo.py": "import ray\n",
    "verl/trainer/ppo/__init__.py": "",
    "verl/trainer/ppo/reward.py": """
        import importlib.util

        class Manager:
            def __call__(self, data):
                raise AssertionError("nobody scores")

        def load_reward_manager(config, tokenizer, num_examine):
            spec = importlib.util.spec_from_file_location("reward", config.custom_reward_function.path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return Manager()
        """,
    "verl/utils/__init__.py": "def hf_tokenizer(path, trust_remote_code): return object()\n",
    "verl/utils/fs.py": "def copy_to_local(path): return path\n",
    "verl/utils/config.py": "def validate_config(config, use_reference_policy, use_critic): pass\n",
    "config/ppo_trainer.json": """
        {"actor_rollout_ref": {"model": {"path": "/models/x"}, "actor": {"use_kl_loss": true}, "rollout": {"name": "hf"}},
         "algorithm": {"adv_estimator": "grpo"}, "critic": {"enable": null}, "trainer": {"logger": []},
         "custom_reward_function": {"path": "reward.py"}}
        """,
}

REWARD = "def compute_score(): return 1.0\n"


def write(folder: Path, changed: Mapping[str, str]) -> None:
    """Write the tree below `folder/site-packages`, and a reward function into `folder/job`. `changed` replaces files of both."""
    files = {f"site-packages/{name}": text for name, text in {**_LIBRARIES, **_VERL}.items()}
    files["job/reward.py"] = REWARD
    for name, text in {**files, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

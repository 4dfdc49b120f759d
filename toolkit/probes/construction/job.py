"""The job, which the stages share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def composed(
    folder: str, name: str, overrides: list[str], added: str = "", *, with_hydra: bool = False
) -> Any:
    """Compose a configuration with the folder of `--config-dir`.

    Hydra searches this folder after the program's own (hydra/_internal/utils.py).

    `with_hydra`: with Hydra's own section.
    """
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=folder, version_base=None):
        if added:
            from hydra.core.config_search_path import SearchPathQuery
            from hydra.core.global_hydra import GlobalHydra

            loader: Any = GlobalHydra.instance().config_loader()
            loader.get_search_path().prepend("command-line", f"file://{added}", SearchPathQuery("schema"))
            loader.repository.initialize_sources(loader.get_search_path())
        return compose(config_name=name, overrides=overrides, return_hydra_config=with_hydra)


_OF_VERL = re.compile(r"(?:^|[./])(?:verl[./](?:trainer|experimental)|recipe)[./]")
_IN_ONE_PROCESS = re.compile(r"[./]main_(?:generation|eval)\w*(?:\.py)?$")


@dataclass
class Job:
    """One job. `config` is Hydra's composition, without the keys that the construction removes (`taken_out`).

    `config_added` is a folder that Hydra searches besides `config_folder`, "" for none. `folder` is where the
    job is started, `private` the only writable folder, `launched` the number of all processes that a launcher
    starts and of those on a node, None if the settings decide it. Each stage adds its results.
    """

    module: str
    folder: str
    private: str
    config_folder: str
    config_name: str
    overrides: list[str]
    config_added: str = ""
    launched: Any = None
    kind: str = "ppo"
    config: Any = None
    program: Any = None
    tokenizer: Any = None
    processor: Any = None
    hf_config: Any = None
    model_config: Any = None
    local_path: str = ""
    trainer: Any = None
    batch: Any = None
    validation_batch: Any = None
    server: Any = None
    outputs: Any = None
    validation_outputs: Any = None
    lengths: list[int] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def has_runner(self) -> bool:
        """Whether a task runner of verl certainly reads the configuration, in a process of its own.

        It does not for the programs that only generate or evaluate, and perhaps not for the user's.
        """
        return _OF_VERL.search(self.module) is not None and _IN_ONE_PROCESS.search(self.module) is None

    def composed(self) -> Any:
        """Compose what `@hydra.main` would pass to the program."""
        return composed(self.config_folder, self.config_name, self.overrides, self.config_added)

    def set_hydra(self) -> None:
        """Set what `${hydra:...}` refers to.

        `@hydra.main` does the same for the program's own process (hydra/core/utils.py).
        """
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf, open_dict

        whole = composed(
            self.config_folder, self.config_name, self.overrides, self.config_added, with_hydra=True
        )
        OmegaConf.set_readonly(whole.hydra, False)
        with open_dict(whole):
            whole.hydra.job.name = self.module.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
            whole.hydra.runtime.cwd = self.folder
            HydraConfig.instance().set_config(whole)  # which makes it read-only
            OmegaConf.set_readonly(whole.hydra.runtime, False)
            whole.hydra.runtime.output_dir = str(Path(self.folder, str(whole.hydra.run.dir)))
            HydraConfig.instance().set_config(whole)

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key; the default if there is none."""
        from omegaconf import OmegaConf

        found = OmegaConf.select(self.config, key, default=default)
        return default if found is None else found

    def has(self, key: str) -> bool:
        """Return whether the configuration has a key, with or without a value."""
        from omegaconf import OmegaConf

        node = self.config
        for step in key.split("."):
            if not OmegaConf.is_dict(node) or step not in node:
                return False
            node = node._get_node(step)
            node = node if OmegaConf.is_config(node) else None
        return True

    def set(self, key: str, value: Any) -> None:
        """Set an existing key."""
        from omegaconf import OmegaConf, open_dict

        if self.has(key):
            with open_dict(self.config):
                OmegaConf.update(self.config, key, value)

    @property
    def world(self) -> int:
        """Return how many GPUs the trainer has."""
        return self.launched[0] if self.launched else self.gpus_of_node * int(self.value("trainer.nnodes", 1))

    @property
    def gpus_of_node(self) -> int:
        """Return how many of them are on one node."""
        return self.launched[1] if self.launched else int(self.value("trainer.n_gpus_per_node", 1))

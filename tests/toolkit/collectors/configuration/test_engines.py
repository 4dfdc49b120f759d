"""Which packages the job's settings choose, where verl imports them, and whether they are installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter, site_packages

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines, chosen_engines
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.target import Target

SGLANG = "actor_rollout_ref.rollout.name=sglang"
MEGATRON = "actor_rollout_ref.actor.strategy=megatron"
LIGER = "+actor_rollout_ref.model.use_liger=True"
NONE = Packages(())


def look(
    top: Path,
    *words: str,
    installed: tuple[str, ...] = ("torch",),
    configuration: Configuration | None = None,
    packages: Packages | Unknown = NONE,
) -> ChosenEngines | Unknown:
    site = site_packages(top)
    for name in installed:
        (site / name).mkdir(parents=True, exist_ok=True)
        (site / name.split("/")[0] / "__init__.py").touch()
    verl = site / "verl"
    for name, line in {
        "workers/rollout/sglang_rollout/server.py": "import os\nimport sglang\n",
        "workers/megatron_workers.py": "def init():\n    from megatron.core import mpu\n",
        "workers/engine/fsdp/engine.py": "    from liger_kernel.transformers import x\n",
    }.items():
        (verl / name).parent.mkdir(parents=True, exist_ok=True)
        (verl / name).write_text(line)
    trees = VerlTrees(Tree(str(verl), "verl", "0.9.1", "site-packages"), "it was named")
    target = Target(Path("/env/bin/python"), chosen_by="--python")
    chosen = configuration or configured(*words)[0]
    return chosen_engines.collect(chosen, trees, target, interpreter(site), packages)


def engines(top: Path, *words: str, installed: tuple[str, ...] = ("torch",)) -> list[tuple[str, bool, str]]:
    found = look(top, *words, installed=installed)
    assert isinstance(found, ChosenEngines)
    return [
        (engine.module, engine.installed, engine.read_from.rpartition("verl/")[2]) for engine in found.engines
    ]


def test_module_imported_for_a_setting_is_looked_up(tmp_path: Path) -> None:
    place = "workers/rollout/sglang_rollout/server.py:2"
    assert engines(tmp_path, SGLANG) == [("sglang", False, place)]
    assert engines(tmp_path, SGLANG, installed=("torch", "sglang")) == [("sglang", True, place)]
    kernel = ("liger_kernel", False, "workers/engine/fsdp/engine.py:1")
    assert engines(tmp_path / "kernel", LIGER) == [kernel]


@pytest.mark.parametrize(
    "tree", [{"engine": {"strategy": "megatron"}}, {"engine": {"tensor_model_parallel_size": 1}}]
)
def test_engine_of_a_fine_tuning_trainer_is_determined(tmp_path: Path, tree: dict[str, object]) -> None:
    """verl 0.9.1 leaves Megatron's strategy to the class of the chosen file."""
    chosen = OverrideWord("engine=megatron", "tune.sh", 2, "chosen", "engine", "", "megatron")
    configuration, *_ = configured(tree=tree)
    configuration = replace(configuration, overrides=(chosen,))
    found = look(tmp_path, configuration=configuration)
    assert isinstance(found, ChosenEngines)
    assert [(engine.key, engine.module, engine.installed) for engine in found.engines] == [
        ("engine.strategy", "megatron.core", False)
    ]


def test_namespace_package_without_the_imported_part_is_not_the_engine(tmp_path: Path) -> None:
    place = "workers/megatron_workers.py:2"
    assert engines(tmp_path / "a", MEGATRON, installed=("torch", "megatron")) == [
        ("megatron.core", False, place)
    ]
    both = ("torch", "megatron/core")
    assert engines(tmp_path / "b", MEGATRON, installed=both) == [("megatron.core", True, place)]


def test_engines_that_this_verl_does_not_import_are_not_judged(tmp_path: Path) -> None:
    assert engines(tmp_path) == [], "there is no rollout with vLLM in this tree"
    assert engines(tmp_path, "actor_rollout_ref.rollout.name=trtllm") == []


def test_environment_with_neither_torch_nor_verl_is_not_judged(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path, SGLANG, installed=()), Absent)
    assert isinstance(look(tmp_path, SGLANG, installed=(), packages=Unknown("unreadable")), Absent)


def test_engine_is_missing_where_verl_is_installed_without_its_requirements(tmp_path: Path) -> None:
    """As PKG101 finds: the metadata of verl show that the job is to run in this environment."""
    packages = Packages((Distribution("verl", "0.8.0", "/env/verl-0.8.0.dist-info"),))
    found = look(tmp_path, SGLANG, installed=(), packages=packages)
    assert isinstance(found, ChosenEngines)
    assert [(engine.module, engine.installed) for engine in found.engines] == [("sglang", False)]


TRACKING = """
class Tracking:
    supported_backend = ["mlflow", "tensorboard", "console"]

    def __init__(self, default_backend):
        if "tracking" in default_backend or "wandb" in default_backend:
            import wandb
        if "mlflow" in default_backend:
            import os

            import mlflow
        if "tensorboard" in default_backend:
            self.logger = _TensorboardAdapter()
        if "console" in default_backend:
            from verl.utils.logger import LocalLogger


class _TensorboardAdapter:
    def __init__(self):
        import os

        from torch.utils.tensorboard import SummaryWriter
"""


def test_tracker_brings_the_package_that_verl_imports_for_it(tmp_path: Path) -> None:
    file = site_packages(tmp_path) / "verl" / "utils" / "tracking.py"
    file.parent.mkdir(parents=True)
    file.write_text(TRACKING)
    every = "trainer.logger=[console,wandb,mlflow,tensorboard]"
    mlflow, board = ("mlflow", False, "utils/tracking.py:11"), ("tensorboard", False, "utils/tracking.py:22")
    assert engines(tmp_path, every) == [mlflow, board]
    there = engines(tmp_path, every, installed=("torch", "mlflow", "tensorboard"))
    assert [installed for _, installed, _ in there] == [True, True]
    assert engines(tmp_path, "trainer.logger=console") == []

"""Packages that the job's chosen rollout, trainer and trackers require, and whether they are installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.registries import LOGGER
from verl_doctor.toolkit.collectors.configuration.roles import trackers_of
from verl_doctor.toolkit.collectors.configuration.tracker_imports import tracker_imports
from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import read
from verl_doctor.toolkit.target import Target

_ROLLOUT = "actor_rollout_ref.rollout.name"
_STRATEGY = "actor_rollout_ref.actor.strategy"
_TUNING = "engine.strategy"  # of the trainer that only fine-tunes
_TUNED_LIGER = "model.use_liger"
_PROFILER = "global_profiler.tool"  # imported whether or not any role is profiled
_TRACE = "actor_rollout_ref.rollout.trace.backend"
_LIGER = "actor_rollout_ref.model.use_liger"
# A setting, the value that selects a package, its module, and where verl imports it: a tree that does not
# import it is not judged.
_ENGINES: tuple[tuple[str, str | bool, str, str, str], ...] = (
    (_ROLLOUT, "vllm", "vllm", "vLLM", "workers/rollout/vllm_rollout"),
    (_ROLLOUT, "sglang", "sglang", "SGLang", "workers/rollout/sglang_rollout"),
    (_ROLLOUT, "trtllm", "tensorrt_llm", "TensorRT-LLM", "workers/rollout/trtllm_rollout"),
    (_STRATEGY, "megatron", "megatron.core", "Megatron Core", "workers/engine/megatron"),
    (_STRATEGY, "megatron", "megatron.core", "Megatron Core", "workers/megatron_workers.py"),
    (_STRATEGY, "torchtitan", "torchtitan", "TorchTitan", "workers/engine/torchtitan"),
    (_STRATEGY, "veomni", "veomni", "VeOmni", "workers/engine/veomni"),
    (_STRATEGY, "automodel", "nemo_automodel", "NeMo AutoModel", "workers/engine/automodel"),
    (_LIGER, True, "liger_kernel", "Liger Kernel", "workers/engine/fsdp"),
    (_LIGER, True, "liger_kernel", "Liger Kernel", "workers/fsdp_workers.py"),
    (_TUNED_LIGER, True, "liger_kernel", "Liger Kernel", "workers/engine/fsdp"),
    (_PROFILER, "nsys", "nvtx", "NVTX", "utils/profiler/nvtx_profile.py"),
    (_TRACE, "weave", "weave", "Weave", "utils/rollout_trace.py"),
    (_TRACE, "mlflow", "mlflow", "MLflow", "utils/rollout_trace.py"),
    (_TRACE, "trackio", "trackio", "Trackio", "utils/rollout_trace.py"),
)

_WITH_ACCOUNTS = ("tracking", "wandb", "swanlab")
"""Trackers that are judged with their keys (toolkit/collectors/variables/trackers.py)."""

_TUNING_ENGINES = tuple(
    (_TUNING, name, module, title, place) for key, name, module, title, place in _ENGINES if key == _STRATEGY
)


@dataclass(frozen=True)
class Engine:
    """A package selected by a setting's value `name`: its `title`, the `module` verl imports, and where."""

    key: str
    name: str
    title: str
    module: str
    installed: bool
    read_from: str = ""


@dataclass(frozen=True)
class ChosenEngines:
    """The packages that the job's settings choose: a rollout, a trainer, kernels, a profiler, trackers."""

    engines: tuple[Engine, ...]


@collector(kept=True)
def chosen_engines(
    configuration: Configuration,
    trees: VerlTrees,
    target: Target,
    interpreter: Interpreter,
    packages: Packages | Unknown,
) -> ChosenEngines | Unknown:
    """Search for the packages on the interpreter's path.

    An environment with neither torch nor an installed verl is not the job's: a login node may have a tree.
    """
    verl_installed = isinstance(packages, Packages) and packages.get("verl") is not None
    if not verl_installed and not is_on_path("torch", interpreter.sys_path):
        return Absent("neither torch nor verl is installed: the job runs in another environment")
    named = {name for name, _ in target.libraries} | ({"vllm"} if target.vllm is not None else set())
    found: dict[str, Engine] = {}
    for key, name, module, title, place in (*_ENGINES, *_TUNING_ENGINES):
        if key in found or _value(configuration, key) != name:
            continue
        line = next(_imports(Path(trees.imported.folder) / place, module), "")
        if line:
            installed = module in named or _is_there(module, interpreter)
            found[key] = Engine(key, str(name), title, module, installed, line)
    verl = Path(trees.imported.folder)
    return ChosenEngines((*found.values(), *_trackers(configuration, verl, named, interpreter)))


def _trackers(
    configuration: Configuration, verl: Path, named: set[str], interpreter: Interpreter
) -> Iterator[Engine]:
    """Yield the packages of the trackers that the job lists."""
    names = [name for name in trackers_of(configuration) if name not in _WITH_ACCOUNTS]
    for name, module, place in tracker_imports(verl, names):
        title = module.partition(".")[0]
        yield Engine(LOGGER, name, title, module, title in named or _is_there(title, interpreter), place)


def _value(configuration: Configuration, key: str) -> object:
    """Return the value of a key. Where a chosen file leaves a strategy to its class, they share the name."""
    value = configuration.get(key)
    group, _, name = key.partition(".")
    if value is MISSING and name == "strategy":
        return next(
            (word.value for word in configuration.overrides if word.fate == "chosen" and word.key == group),
            MISSING,
        )
    return value


def _is_there(module: str, interpreter: Interpreter) -> bool:
    top, _, below = module.partition(".")
    if not is_on_path(top, interpreter.sys_path):
        return False
    # Anything but a plain folder of that name is an editable install, or a package split over several
    # folders.
    folders = [Path(entry, top) for entry in interpreter.sys_path if os.path.isdir(Path(entry, top))]
    return not below or not folders or any(os.path.exists(folder / below) for folder in folders)


def _imports(place: Path, module: str) -> Iterator[str]:
    """Yield the places where verl imports the module at the start of a line, as "path:line"."""
    statement = re.compile(rb"^\s*(?:from|import) " + re.escape(module.encode()) + rb"\b", re.MULTILINE)
    for path in sorted(place.glob("*.py")) if place.suffix != ".py" else [place]:
        content = read(path)
        match = statement.search(content) if isinstance(content, bytes) else None
        if match and isinstance(content, bytes):
            yield f"{path}:{content.count(bytes([10]), 0, match.start()) + 1}"

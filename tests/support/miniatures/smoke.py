"""Packages of a few lines that represent torch, Ray, vLLM and verl, and a stage for rungs that finishes quickly."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.commands.smoke.rung import Stage
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

TORCH = """
bfloat16 = "bfloat16"
class cuda:
    init = staticmethod(lambda: None)
    device_count = staticmethod(lambda: 0)
class ones:
    def __init__(self, rows, columns, **options):
        self.value = 1
    def __matmul__(self, other):
        self.value = 256
        return self
    float = cpu = min = max = lambda self: self
    def __eq__(self, size):
        self.same = self.value == size
        return self
    all = lambda self: self.same
"""
VLLM = """
class SamplingParams:
    def __init__(self, max_tokens, **others):
        self.tokens = max_tokens
class Answer:
    def __init__(self, tokens):
        self.outputs = [self]
        self.token_ids = [1] * tokens
class LLM:
    def __init__(self, model, **others):
        print("loading", model)
    def generate(self, prompts, sampling, use_tqdm):
        return [Answer(sampling.tokens) for _ in prompts]
"""
RAY = """
import os
from ray import util
class _Method:
    def __init__(self, call): self.call = call
    def remote(self, *given): return self.call(*given)
class _Actor:
    def __init__(self, made): self.made = made
    def __getattr__(self, name): return _Method(getattr(self.made, name))
class _Remote:
    def __init__(self, what): self.what = what
    def options(self, name=None, **others):
        self.name = name
        return self
    def remote(self):
        made = self.what()
        if not isinstance(self.what, type):
            return made
        named[self.name] = _Actor(made)
        return named[self.name]
named = {}
remote = _Remote
get = lambda what: what
kill = lambda actor: None
get_actor = lambda name, namespace: named[name]
cluster_resources = available_resources = lambda: {"CPU": 3.0, "GPU": 1.0}
def init(runtime_env, num_gpus, **others):
    os.environ.update(runtime_env["env_vars"], CUDA_VISIBLE_DEVICES="0")
shutdown = lambda: None
"""
UTIL = """
class _Group:
    def wait(self, seconds): return True
placement_group = lambda bundles, strategy: _Group()
remove_placement_group = lambda group: None
"""
_STRATEGY = "class PlacementGroupSchedulingStrategy:\n    def __init__(self, group, placement_group_bundle_index): pass\n"
WHOLE: Mapping[str, str] = {
    "torch/__init__.py": TORCH,
    "vllm/__init__.py": VLLM,
    "ray/__init__.py": RAY,
    "ray/util/__init__.py": UTIL,
    "ray/util/scheduling_strategies.py": _STRATEGY,
    "verl/__init__.py": "",
    "verl/trainer/__init__.py": "",
    "verl/trainer/main_ppo.py": "",
}


def packages(folder: Path, **changed: str) -> Path:
    """Write them; `vllm="raise OSError"` replaces the content of a package."""
    for name, text in WHOLE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for package, text in changed.items():
        path = folder / package.replace("__", "/")
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).write_text(text)
    return folder


def stage(folder: Path, site: Path, **options: Any) -> Stage:
    """A stage on the CPU whose interpreter imports these packages."""
    python = Path(sys.executable)
    verl = Tree(str(site / "verl"), "verl", "0.9.1", "the test")
    facts = Collection(
        (), {VerlTrees: VerlTrees(verl, "the test"), VllmPlatform: VllmPlatform("cpu", "vllm 0.31.0+cpu")}
    )
    private = folder / "private"
    private.mkdir(exist_ok=True)
    given = {
        "machine": Machine(),
        "target": Target(python, "--python"),
        "facts": facts,
        "python": sys.executable,
        "environ": {"PYTHONPATH": str(site)},
        "folder": private,
        "logs": folder / "logs",
        "device": "cpu",
        "model": folder / "model",
    }
    return Stage(**{**given, **options})

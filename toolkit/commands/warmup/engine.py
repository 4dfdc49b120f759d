"""Compile an engine's GPU code before the job: vLLM is started once as the job would start it.

Its effect is measured by the cache folders of the packages (`Caches`): what they contain afterwards and did
not before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import LaunchValues, launch_values
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.vllm.rollout_logprobs import rollout_logprobs
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.commands.warmup.warmup import EngineCaches, Growth
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import warm_engine

_LONGEST = 1800.0  # seconds: a large model from a slow disk, and its compilation
_ROLLOUT = "actor_rollout_ref.rollout"
# The settings that verl passes to vLLM's LLM and that determine the shapes of compiled code.
_HANDED_ON = (
    "tensor_model_parallel_size",
    "gpu_memory_utilization",
    "enforce_eager",
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "enable_prefix_caching",
)
_VLLMS_NAMES = {"tensor_model_parallel_size": "tensor_parallel_size"}
_NO_MODELS = "HF_HOME"  # it holds downloads, nothing compiled
_MOST_FILES = 200_000
# https://specifications.freedesktop.org/basedir-spec/latest/
_BELOW_HOME = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


def compile_kernels(machine: Machine, collection: Collection, model: str, *, dry_run: bool) -> EngineCaches:
    """Start the engine once, if there are GPUs to compile for."""
    caches, interpreter, vllm = collection.get(Caches), collection.get(Interpreter), collection.get(VllmTree)
    if isinstance(caches, Unknown):
        return EngineCaches("not applicable", caches.reason)
    if isinstance(interpreter, Unknown):
        return EngineCaches("not applicable", interpreter.reason)
    if isinstance(vllm, Unknown):
        return EngineCaches("not applicable", vllm.reason)
    if not model:
        return EngineCaches("not applicable", "no model is given to start an engine with")
    values = launch_values(collection.get(Launch), collection.get(Configuration))
    if dry_run:
        return EngineCaches("planned", f"vLLM would be started once with {model}")
    before = _sizes(caches)
    text = Path(warm_engine.__file__).read_text("utf-8")
    ran = machine.run(
        [
            interpreter.executable,
            "-c",
            text,
            json.dumps(
                {**engine_arguments(model, values), **rollout_logprobs(collection.get(VllmSampler), values)}
            ),
        ],
        timeout=_LONGEST,
        env=_environ(machine, collection),
    )
    grown = _grown(caches, before)
    if ran.code != 0:
        why = "it did not finish in time" if ran.code is None else ran.last_line
        return EngineCaches("failed", f"vLLM could not be started: {why}", ran.seconds, grown)
    return EngineCaches("written" if grown else "nothing new", "", ran.seconds, grown)


def engine_arguments(model: str, values: LaunchValues) -> dict[str, Any]:
    """Return the arguments of vLLM's LLM for the job's configuration, as far as it sets them."""
    arguments: dict[str, Any] = {"model": model}
    for name in _HANDED_ON:
        given = values.get(f"{_ROLLOUT}.{name}")
        if given is not None and given.known and given.value is not None:
            arguments[_VLLMS_NAMES.get(name, name)] = given.value
    if "max_model_len" not in arguments and (longest := _prompt_and_answer(values)):
        arguments["max_model_len"] = longest
    return arguments


def _prompt_and_answer(values: LaunchValues) -> int:
    """Return the length that verl passes to an engine without a configured length."""
    lengths = [values.get(f"data.max_{part}_length") for part in ("prompt", "response")]
    known = [length.value for length in lengths if length is not None and isinstance(length.value, int)]
    return sum(known) if len(known) == len(lengths) else 0


def _environ(machine: Machine, collection: Collection) -> dict[str, str]:
    """Return the job's own environment, with its home and folders, where it looks for compiled code."""
    variables, job = collection.get(Variables), collection.get(JobVariables)
    environ = dict(machine.environ)
    if not isinstance(variables, Unknown) and not isinstance(job, Unknown):
        environ = child_environ(machine, variables, job, collection.get(RolloutModule))
    home = environ.get("HOME") or machine.home
    usual = {name: f"{home}/{folder}" for name, folder in _BELOW_HOME.items()}
    return {"HOME": home, "TMPDIR": "/tmp", **usual, **environ}  # noqa: S108 - the default of programs


def _sizes(caches: Caches) -> dict[str, Mapping[str, int]]:
    return {folder.path: _files(folder.path) for folder in caches.folders if folder.variable != _NO_MODELS}


def _grown(caches: Caches, before: Mapping[str, Mapping[str, int]]) -> tuple[Growth, ...]:
    found = []
    for folder in caches.folders:
        if folder.path in before:
            new = {
                name: size
                for name, size in _files(folder.path).items()
                if before[folder.path].get(name) != size
            }
            if new:
                found.append(Growth(folder.holds, folder.path, len(new), sum(new.values())))
    return tuple(found)


def _files(folder: str) -> dict[str, int]:
    """Return the sizes of the files below a folder."""
    found: dict[str, int] = {}
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found[f"{top}/{name}"] = Path(top, name).lstat().st_size
        if len(found) > _MOST_FILES:
            break
    return found

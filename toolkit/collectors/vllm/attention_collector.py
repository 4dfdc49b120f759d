"""Collects the attention backends of the installed vLLM."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.facts import Unknown, collector


@collector()
def attention_backends(
    requested: AttentionAsked,
    vllm: VllmTree,
    platform: VllmPlatform | Unknown,
    model: Model | Unknown,
    interpreter: Interpreter | Unknown,
    resources: Resources,
) -> AttentionBackends | Unknown:
    """Read the enumeration, the platforms and the requested classes."""
    from verl_doctor.toolkit.collectors.vllm.attention_backends import read_backends  # noqa: PLC0415 - only where a backend is named

    return read_backends(
        vllm.tree,
        names=[place.name for place in requested.places],
        platform="" if isinstance(platform, Unknown) else platform.name,
        model=None if isinstance(model, Unknown) else model,
        capability=_capability(resources),
        path=interpreter.sys_path if vllm.distribution and isinstance(interpreter, Interpreter) else (),
    )


def _capability(resources: Resources) -> str:
    """Return the compute capability shared by all GPUs."""
    found = {gpu.capability for gpu in resources.gpus or ()}
    return found.pop() if len(found) == 1 else ""

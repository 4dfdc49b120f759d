"""The device on which a smoke test runs, and what follows for the model and for vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verl_doctor.toolkit.collectors.gpu.nodes import has_device_nodes
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.smoke.run import Device
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


def device_of(machine: Machine, facts: Facts, *, on_cpu: bool) -> tuple[Device, str]:
    """Return the device, and why it was chosen. `on_cpu`: the user requested the CPU."""
    if on_cpu:
        return "cpu", "--cpu"
    if has_device_nodes(machine):
        return "cuda", "there is an NVIDIA GPU"
    platform = facts.get(VllmPlatform)
    why = platform.reason if isinstance(platform, Unknown) else f"vLLM is {_purpose(platform)}"
    return "cpu", f"there is no NVIDIA GPU; {why}"


def own_model(facts: Facts, target: Target, device: Device) -> Path | None:
    """Return the user's own model: the named one, or with a GPU the launch script's model if it exists."""
    if target.model is not None:
        return target.model
    if device == "cpu" or not (target.files or target.words):
        return None
    model = facts.get(Model)
    return Path(model.folder) if isinstance(model, Model) else None


def uncompiled(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that keeps torch from compiling kernels for a processor, unless the user set it.

    That takes a compiler and 10 to 30 s at the first start, and no GPU ever runs these kernels.
    """
    return {"TORCHDYNAMO_DISABLE": environ.get("TORCHDYNAMO_DISABLE", "1")}


def lacks_cpu_vllm(facts: Facts) -> str:
    """Return what is missing, and why, if vLLM is not built for CPUs; "" if it is."""
    platform = facts.get(VllmPlatform)
    if isinstance(platform, VllmPlatform) and platform.name == "cpu":
        return ""
    why = platform.reason if isinstance(platform, Unknown) else f"it is {_purpose(platform)}"
    return f"a vLLM for processors is needed: {why}"


def _purpose(platform: VllmPlatform) -> str:
    return f"for {platform.name} ({platform.evidence})"

"""Collects which sampler the installed vLLM uses."""

from __future__ import annotations

import ast
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Capability
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.collectors.vllm.sampler import VARIABLE, VllmSampler
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, statements


@collector()
def vllm_sampler(
    vllm: VllmTree,
    platform: VllmPlatform,
    flashinfer: FlashInfer,
    variables: JobVariables,
    verl: VerlTrees | Unknown,
) -> VllmSampler | Unknown:
    """Follow the constructor of vLLM's sampler with the job's variables."""
    from verl_doctor.toolkit.collectors.vllm.sampler_reader import SamplerReader  # noqa: PLC0415 - beside GPUs only

    if platform.name != "cuda":
        return Absent(f"this vLLM runs on {platform.name}, and FlashInfer on CUDA")
    if VARIABLE in variables.undetermined:
        return Unknown(f"{VARIABLE} is set to something that cannot be determined from the launch files")
    reader = SamplerReader(vllm.tree, Capability.read(flashinfer.capability), flashinfer.version)
    value = variables.values.get(VARIABLE)
    chosen = reader.takes_flashinfer(value, processed=False)
    if chosen is None:
        return Unknown(f"vLLM {vllm.tree.version} chooses its sampler in an unknown way")
    return VllmSampler(
        version=vllm.tree.version,
        read_from=reader.path,
        flashinfer=chosen,
        with_processed=reader.takes_flashinfer(value, processed=True) is True,
        second_runner=chosen and reader.second_runner_requires(),
        can_be_switched=reader.takes_flashinfer("0", processed=False) is False,
        wanted_by_verl="" if isinstance(verl, Unknown) else _default_of_verl(Path(verl.imported.folder)),
    )


def _default_of_verl(folder: Path) -> str:
    """Return the default of `logprobs_mode` in the class of verl's rollout configuration."""
    path = folder / "workers" / "config" / "rollout.py"
    tree = parse_file(path)
    for node in () if isinstance(tree, Unreadable) else statements(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id="logprobs_mode"), value=ast.Constant(value=str(value))):
                return value
    return ""

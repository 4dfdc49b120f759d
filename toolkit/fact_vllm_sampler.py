"""Which sampler the vLLM of the target takes on the GPUs of this machine: its own, or FlashInfer's, which must be compiled."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.fact_flashinfer import FlashInfer
from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.fact_resources import Capability
from verl_doctor.toolkit.fact_trees import VerlTrees, VllmTree
from verl_doctor.toolkit.fact_vllm_platform import VllmPlatform
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.py_source import Unreadable, parse, read, statements

VARIABLE = "VLLM_USE_FLASHINFER_SAMPLER"


@dataclass(frozen=True)
class VllmSampler:
    """`flashinfer`: its sampler is FlashInfer's as the job is set up, `with_processed` also when log probabilities after top-k and top-p are wanted.

    `second_runner`: a second model runner, which vLLM takes for some models, asks for FlashInfer's in either case.
    `can_be_switched`: `VLLM_USE_FLASHINFER_SAMPLER=0` keeps this vLLM from it. `read_from` is the file that decides.
    `wanted_by_verl` is the default of verl's `logprobs_mode`, "" when it has none: log probabilities are then raw.
    """

    version: str
    read_from: str
    flashinfer: bool
    with_processed: bool = False
    second_runner: bool = False
    can_be_switched: bool = True
    wanted_by_verl: str = ""


@collector()
def vllm_sampler(
    vllm: VllmTree,
    platform: VllmPlatform,
    flashinfer: FlashInfer,
    variables: JobVariables,
    verl: VerlTrees | Unknown,
) -> VllmSampler | Unknown:
    """Follow the constructor of vLLM's sampler with the job's variables."""
    from verl_doctor.toolkit.vllm_sampler import SamplerReader  # noqa: PLC0415 - beside GPUs only

    if platform.name != "cuda":
        return Absent(f"this vLLM runs on {platform.name}, and FlashInfer on CUDA")
    if VARIABLE in variables.untold:
        return Unknown(f"{VARIABLE} is set to something that reading the launch files cannot tell")
    reader = SamplerReader(vllm.tree, Capability.read(flashinfer.capability), flashinfer.version)
    value = variables.values.get(VARIABLE)
    chosen = reader.takes_flashinfer(value, processed=False)
    if chosen is None:
        return Unknown(f"how vLLM {vllm.tree.version} chooses its sampler is not understood")
    return VllmSampler(
        version=vllm.tree.version,
        read_from=reader.path,
        flashinfer=chosen,
        with_processed=reader.takes_flashinfer(value, processed=True) is True,
        second_runner=chosen and reader.second_runner_asks(),
        can_be_switched=reader.takes_flashinfer("0", processed=False) is False,
        wanted_by_verl="" if isinstance(verl, Unknown) else _default_of_verl(Path(verl.imported.folder)),
    )


def _default_of_verl(folder: Path) -> str:
    """What the class of verl's rollout configuration gives to `logprobs_mode`."""
    path = folder / "workers" / "config" / "rollout.py"
    source = read(path)
    tree = source if isinstance(source, Unreadable) else parse(source, path)
    for node in () if isinstance(tree, Unreadable) else statements(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id="logprobs_mode"), value=ast.Constant(value=str(value))):
                return value
    return ""

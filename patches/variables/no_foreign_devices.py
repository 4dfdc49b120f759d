"""Fix for CUDA153: remove AMD's variable of visible devices from the job."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.variables.foreign_devices import VARIABLES
from verl_doctor.toolkit.rule import Finding, Subject


@fix("no-foreign-devices", repairs="CUDA153", safety="safe", restart="Ray and the job")
def no_foreign_devices(finding: Finding, gpus: Gpus) -> list[Change] | Refusal:
    """Remove AMD's variable of visible devices from the job.

    Only with NVIDIA GPUs, for which it has no meaning.
    """
    named = [name for name in VARIABLES if finding.subject == Subject("variable", name)]
    if not gpus.devices or not named:
        return Refusal("no NVIDIA GPU responds here, so the variable may be intended")
    why = "verl refuses it together with CUDA_VISIBLE_DEVICES, and these are NVIDIA GPUs"
    return [SetVariable(name, None, why, node_only=True) for name in named]

"""Which sampler the target's vLLM uses on this machine's GPUs: its own or FlashInfer's.

FlashInfer's must be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

VARIABLE = "VLLM_USE_FLASHINFER_SAMPLER"


@dataclass(frozen=True)
class VllmSampler:
    """Which sampler vLLM uses for the job.

    `flashinfer`: the job's sampler is FlashInfer's, `with_processed` also with log probabilities after top-k
    and top-p.

    `second_runner`: a second model runner, which vLLM uses for some models, requires FlashInfer's in either
    case. `can_be_switched`: `VLLM_USE_FLASHINFER_SAMPLER=0` keeps this vLLM from using it. `read_from` is the
    file that decides. `wanted_by_verl` is the default of verl's `logprobs_mode`, "" if it has none: log
    probabilities are then raw.
    """

    version: str
    read_from: str
    flashinfer: bool
    with_processed: bool = False
    second_runner: bool = False
    can_be_switched: bool = True
    wanted_by_verl: str = ""

"""Which sampler the vLLM of the target takes on the GPUs of this machine: its own, or FlashInfer's, which must be compiled."""

from __future__ import annotations

from dataclasses import dataclass

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

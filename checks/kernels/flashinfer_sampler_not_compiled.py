"""CUDA130: FlashInfer's sampler is compiled when the engine first starts."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.flashinfer import about, may_compile_sampler, must_compile_sampler, wheel
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TORCH, job
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.sampler import VARIABLE, VllmSampler
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

# vLLM 0.24.0, FlashInfer 0.6.12, one H200, 16 cores, a model of two layers.
_COST = (
    "measured on an H200 node: the first engine start was not finished after 150 s; "
    f"with {VARIABLE}=0 it took 46 s"
)


def _examples() -> list[Example]:
    return [
        Example("compiled before", (H200(built=("sampling",)), SAMPLER(), TORCH)),
        Example("vLLM samples by itself", (H200(), SAMPLER(flashinfer=False), TORCH)),
        Example(
            "verl needs log probabilities that FlashInfer cannot return",
            (H200(), SAMPLER(wanted_by_verl="processed_logprobs"), TORCH),
        ),
        Example(
            "the job requests raw log probabilities",
            (H200(), SAMPLER(wanted_by_verl="processed_logprobs"), TORCH, job("raw_logprobs")),
            "nvcc compiles",
        ),
        Example(
            "the second model runner always uses FlashInfer",
            (H200(), SAMPLER(second_runner=True), TORCH, job("processed_logprobs")),
            "if vLLM 0.24.0 uses its second model runner",
        ),
        Example(
            "no compiled kernel exists",
            (H200(), SAMPLER(), TORCH),
            "FlashInfer 0.6.12 has no compiled sampler for GPUs of capability 9.0",
        ),
        Example(
            "the cubin wheel does not contain the kernel",
            (H200(cubin="0.6.12"), SAMPLER(), TORCH),
            "no compiled sampler",
        ),
    ]


@check("CUDA130", severity="warning", requires={"CUDA132"}, examples=_examples)
def flashinfer_sampler_not_compiled(
    flashinfer: FlashInfer,
    sampler: VllmSampler,
    torch: TorchBuild | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """FlashInfer's sampler is compiled when the engine first starts.

    ## Why it matters

    FlashInfer ships its kernels as sources. Which of them vLLM needs by default has changed between its
    releases; this rule reads it from the installed vLLM. A kernel that is not yet in FlashInfer's cache is
    compiled by nvcc while the engine starts, on each node, and again for each release and kind of GPU. That
    takes minutes, and looks like a hang. The wheel `flashinfer-cubin` does not help: it holds other kernels.

    verl requests log probabilities as they are after top-k and top-p, which vLLM's first model runner
    computes without FlashInfer: a GRPO step of verl 0.9.1 with vLLM 0.24.0 compiled nothing on an H200.

    ## How to fix

    Install `flashinfer-jit-cache` of exactly FlashInfer's version, or set `VLLM_USE_FLASHINFER_SAMPLER=0`:
    vLLM then samples with its own kernels. The distribution of tokens is the same; where a job samples with
    top-k or top-p, other random numbers are drawn, and each step may take a little longer. Without them
    (verl's default) both ways run the same code.

    Or compile it before the job, once for each kind of GPU: `python -c "from flashinfer.jit.sampling import
    gen_sampling_module as g; g().build_and_load()"`. Set FLASHINFER_WORKSPACE_BASE to a folder that outlives
    the container.
    """
    certain = must_compile_sampler(flashinfer, sampler, configuration)
    if not certain and not may_compile_sampler(flashinfer, sampler, configuration):
        return
    seen = [f"no {flashinfer.cache}/*/cached_ops/sampling/sampling.so", "no flashinfer-jit-cache"]
    if flashinfer.jit_cache:
        seen[1] = f"flashinfer-jit-cache {flashinfer.jit_cache} has no build for it"
    if flashinfer.cubin:
        seen.append("flashinfer-cubin does not contain it")
    switch = f"set {VARIABLE}=0, or " if sampler.can_be_switched else ""
    yield Finding(
        (
            f"FlashInfer {flashinfer.version} has no compiled sampler for GPUs of capability "
            f"{flashinfer.capability}: "
        )
        + (
            f"nvcc compiles it when vLLM {sampler.version} first starts"
            if certain
            else f"nvcc compiles it if vLLM {sampler.version} uses its second model runner for this model"
        ),
        Evidence("; ".join(seen), _COST, sampler.read_from),
        remedy=f"{switch}install it: {wheel(flashinfer, torch)}",
        severity=None if certain else "info",
        fix="own-sampler" if sampler.can_be_switched else None,
        subject=about(flashinfer),
    )

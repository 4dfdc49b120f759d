"""CUDA134: FlashInfer's attention is compiled when the engine first starts."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.attention import heeded, location, written
from verl_doctor.checks.shared.flashinfer import about, wheel
from verl_doctor.checks.shared.flashinfer_examples import H200, TORCH
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked, RequestedBackend
from verl_doctor.toolkit.collectors.vllm.flashinfer_attention import NAME, FlashInferAttention
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_KERNELS = ("batch_prefill", "batch_decode", "fmha", "trtllm")
_FLASH = FlashInferAttention(version="0.12.0", first="FLASH_ATTN", read_from="/env/vllm/platforms/cuda.py")
_BLACKWELL = FlashInferAttention(version="0.12.0", first=NAME, read_from="/env/vllm/platforms/cuda.py")
_BACKENDS = AttentionBackends(
    version="0.12.0", read_from="/env/vllm/registry.py", registry=True, backends=(), variable_is_read=True
)


def _requesting(name: str) -> AttentionAsked:
    return AttentionAsked(
        (RequestedBackend(by="VLLM_ATTENTION_BACKEND", name=name, written="VLLM_ATTENTION_BACKEND"),)
    )


def _examples() -> list[Example]:
    return [
        Example("another backend is the default", (H200(), _FLASH, TORCH)),
        Example("another backend is set", (H200(), _BLACKWELL, TORCH, _requesting("FLASH_ATTN"), _BACKENDS)),
        Example("compiled before", (H200(built=("batch_prefill_with_kv_cache_x",)), _BLACKWELL, TORCH)),
        Example(
            "a Blackwell GPU",
            (H200(capability="10.0"), _BLACKWELL, TORCH),
            "no compiled attention for GPUs of capability 10.0",
        ),
        Example(
            "the job sets FlashInfer",
            (H200(), _FLASH, TORCH, _requesting(NAME), _BACKENDS),
            "no compiled attention",
        ),
    ]


@check("CUDA134", severity="warning", examples=_examples)
def flashinfer_attention_not_compiled(
    flashinfer: FlashInfer,
    attention: FlashInferAttention,
    torch: TorchBuild | Unknown,
    requested: AttentionAsked | Unknown,
    backends: AttentionBackends | Unknown,
) -> Iterator[Finding]:
    """FlashInfer's attention is compiled when the engine first starts.

    ## Why it matters

    vLLM uses FlashInfer for attention on Blackwell GPUs, and wherever it is requested. Its kernels are
    shipped as sources, one for each combination of types and head size; nvcc compiles those that are not in
    its cache while the engine starts, on each node. How long that takes was not measured; its sampler alone
    took more than 150 s on an H200 node.

    ## How to fix

    Install `flashinfer-jit-cache` of exactly FlashInfer's version, or request a backend that is already
    compiled, such as FLASH_ATTN.
    """
    places = (
        list(heeded(requested, backends))
        if isinstance(requested, AttentionAsked) and isinstance(backends, AttentionBackends)
        else []
    )
    named = next((place for place, name in places if name == NAME), None)
    if not (named or (attention.by_default and not places)):
        return
    if any(kernel.startswith(_KERNELS) for kernel in flashinfer.built):
        return
    yield Finding(
        (
            f"FlashInfer {flashinfer.version} has no compiled attention for GPUs of capability "
            f"{flashinfer.capability}: nvcc compiles it when vLLM {attention.version} first starts"
        ),
        Evidence(
            (
                f"{written(named) if named else 'the default of vLLM here'}; nothing in "
                f"{flashinfer.cache}/*/cached_ops"
            ),
            "flashinfer-jit-cache; what compiling costs is not measured",
            attention.read_from,
        ),
        location=location(named) if named else None,
        remedy=f"install it: {wheel(flashinfer, torch)}" + (f", or remove {written(named)}" if named else ""),
        subject=about(flashinfer),
    )

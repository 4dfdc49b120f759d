"""Optional parts of engines and trainers, and what leaves them out."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.advice.places import LONGEST, NEAREST, OUTSIDE, Place
from verl_doctor.toolkit.logs.blame import REMOTE_CODE, own_frames
from verl_doctor.toolkit.logs.python_errors import Raised

# Parts of engines and trainers that can be left out: what shows them in the path of a place or in a message,
# and what leaves them out.
_PARTS = (
    (
        re.compile(r"aiter"),
        "VLLM_ROCM_USE_AITER=0, or the variable of the part that failed, such as VLLM_ROCM_USE_AITER_MOE=0",
    ),
    (
        re.compile(r"deep_?gemm", re.IGNORECASE),
        "VLLM_USE_DEEP_GEMM=0, in SGLang SGLANG_ENABLE_JIT_DEEPGEMM=0",
    ),
    (re.compile(r"custom_all_?reduce"), "engine_kwargs.vllm.disable_custom_all_reduce=True"),
    (re.compile(r"symm_mem"), "VLLM_ALLREDUCE_USE_SYMM_MEM=0"),
    (re.compile(r"[Cc]ascade"), "engine_kwargs.vllm.disable_cascade_attn=True"),
    (
        re.compile(r"spec_decode|speculative|eagle|NGRAMWorker", re.IGNORECASE),
        "no speculative decoding, or another method of it",
    ),
    (
        re.compile(r"flashinfer", re.IGNORECASE),
        (
            "VLLM_USE_FLASHINFER_SAMPLER=0 and another attention backend, in vLLM "
            "engine_kwargs.vllm.attention_backend (VLLM_ATTENTION_BACKEND in older releases), in SGLang "
            "attention_backend=triton"
        ),
    ),
    (
        re.compile(r"(?:vllm|sglang)/.*attention/"),
        (
            "another attention backend: in vLLM engine_kwargs.vllm.attention_backend "
            "(VLLM_ATTENTION_BACKEND in older releases), in SGLang attention_backend"
        ),
    ),
    (
        re.compile(r"(?<!vllm_)flash_attn(?!/layers)"),
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    ),
    (re.compile(r"cuda_?graph"), "rollout.enforce_eager=True"),
    (
        re.compile(r"torch/_(?:dynamo|inductor)/"),
        (
            "rollout.enforce_eager=True where the engine failed, actor.use_torch_compile=False where the "
            "trainer did"
        ),
    ),
    (re.compile(r"/cumem|torch_memory_saver"), "rollout.free_cache_engine=False, if both fit on the GPU"),
    (re.compile(r"liger_kernel"), "actor_rollout_ref.model.use_liger=False"),
    (
        re.compile(r"transformer_engine/.*attention|fused_attn"),
        "NVTE_FUSED_ATTN=0, or a newer cuDNN, which computes this attention",
    ),
    (re.compile(r"bitsandbytes"), "another optimizer"),
    (re.compile(r"decord"), "FORCE_QWENVL_VIDEO_READER=torchvision"),
    (re.compile(r"mamba_block_aligned|prefix_cach"), "rollout.enable_prefix_caching=False"),
    (re.compile(r"kv_transfer/|lmcache"), "no KV connector (kv_transfer_config in engine_kwargs)"),
    (re.compile(r"fp8_kv"), "kv_cache_dtype=auto (no fp8 in engine_kwargs)"),
    (re.compile(r"vllm/v1/metrics/"), "rollout.disable_log_stats=True"),
    (re.compile(r"vllm/multimodal/cache|mm_receiver_cache"), "engine_kwargs.vllm.mm_processor_cache_gb=0"),
    (
        re.compile(r"layered_summon"),
        "rollout.layered_summon=False, or actor.fsdp_config.offload_policy=False if that is set",
    ),
    (re.compile(r"calculate_debug_metrics"), "rollout.calculate_log_probs=False"),
    (re.compile(r"grpo_vectorized"), "algorithm.adv_estimator=grpo"),
    (re.compile(r"verl/utils/tracking|mlflow/|swanlab/"), "trainer.logger=['console']"),
    (re.compile(r"verl/utils/profiler/(?!performance)"), "global_profiler.tool=null"),
    (re.compile(r"router_replay|routed_experts"), "actor.router_replay.mode=disabled"),
    (re.compile(r"activation_offload"), "actor_rollout_ref.model.enable_activation_offload=False"),
    (
        re.compile(r"linear_cross_entropy|fused_kernels|_fused\.py|forward_fused"),
        "actor_rollout_ref.model.use_fused_kernels=False",
    ),
    (re.compile(r"ulysses"), "actor.ulysses_sequence_parallel_size=1"),
    (re.compile(r"seqlen_balancing"), "trainer.balance_batch=False and actor.use_dynamic_bsz=False"),
)


def without_part(raised: Raised, place: Place) -> str:
    """Return how to do without the part of an installed package in which an exception was raised."""
    if (
        place.package in {"", REMOTE_CODE}
        or raised.name in OUTSIDE
        or raised.name.endswith(("ImportError", "ModuleNotFoundError"))
    ):
        return ""
    nearest = (f"{frame.path} {frame.function}" for frame in reversed(own_frames(raised.frames)[-NEAREST:]))
    switch = next(filter(None, map(switch_for, (raised.message[:LONGEST], *nearest))), "")
    return f"or do without the part that failed: {switch}" if switch else ""


def switch_for(shown: str) -> str:
    """Return what leaves out the part that a path or a message names."""
    return next((switch for part, switch in _PARTS if part.search(shown)), "")

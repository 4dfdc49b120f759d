"""What became of environment variables, which the sources of a single release cannot show.

Rules read this list, none repeats it.

The last release that read a `VLLM_` variable was found by searching the sources of all releases from 0.8.5 to
0.32.0 for code that reads it, in 2026-11. Whether the installed release reads it is not looked up here: its
own sources show that.
"""

from __future__ import annotations

from dataclasses import dataclass

_LAST_READ = {
    "0.9.1": "VLLM_ENABLE_MOE_ALIGN_BLOCK_SIZE_TRITON",
    "0.9.2": "VLLM_HPU_USE_DELAYED_SAMPLING VLLM_QUARK_EMU_MEM_OPT VLLM_USE_HPU_CONTIGUOUS_CACHE_FETCH",
    "0.10.0": "VLLM_USE_TRTLLM_DECODE_ATTENTION VLLM_V0_USE_OUTLINES_CACHE",
    "0.10.1.1": "VLLM_FLASHINFER_FORCE_TENSOR_CORES",
    "0.10.2": "VLLM_GPT_OSS_USE_CONTAINER_TOOL VLLM_LOGITS_PROCESSOR_THREADS VLLM_RPC_TIMEOUT",
    "0.11.0": (
        "VLLM_DISABLE_NCCL_FOR_DP_SYNCHRONIZATION VLLM_DISABLE_PAD_FOR_CUDAGRAPH "
        "VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB VLLM_ROCM_USE_TRITON_ROPE VLLM_SKIP_DEEP_GEMM_WARMUP "
        "VLLM_USE_AITER_UNIFIED_ATTENTION VLLM_USE_DEEP_GEMM_E8M0_HOPPER VLLM_USE_RAY_COMPILED_DAG "
        "VLLM_USE_RAY_SPMD_WORKER VLLM_USE_TRITON_FLASH_ATTN VLLM_USE_TRTLLM_FP4_GEMM VLLM_USE_V1"
    ),
    "0.11.2": "VLLM_CPU_MOE_PREPACK VLLM_FLAT_LOGPROBS",
    "0.12.0": "VLLM_MM_INPUT_CACHE_GIB",
    "0.13.0": (
        "VLLM_ROCM_USE_AITER_PAGED_ATTN VLLM_TPU_BUCKET_PADDING_GAP VLLM_TPU_MOST_MODEL_LEN "
        "VLLM_XLA_CACHE_PATH VLLM_XLA_CHECK_RECOMPILATION"
    ),
    "0.14.1": (
        "VLLM_ATTENTION_BACKEND VLLM_DISABLE_FLASHINFER_PREFILL VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION "
        "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH VLLM_FLASH_ATTN_VERSION VLLM_USE_CUDNN_PREFILL "
        "VLLM_USE_TRTLLM_ATTENTION VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL "
        "VLLM_V1_USE_PREFILL_DECODE_ATTENTION"
    ),
    "0.15.1": (
        "VLLM_ALL2ALL_BACKEND VLLM_PROFILER_DELAY_ITERS VLLM_PROFILER_MAX_ITERS VLLM_TORCH_CUDA_PROFILE "
        "VLLM_TORCH_PROFILER_DIR VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM "
        "VLLM_TORCH_PROFILER_DUMP_CUDA_TIME_TOTAL VLLM_TORCH_PROFILER_RECORD_SHAPES "
        "VLLM_TORCH_PROFILER_USE_GZIP VLLM_TORCH_PROFILER_WITH_FLOPS "
        "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY VLLM_TORCH_PROFILER_WITH_STACK"
    ),
    "0.17.1": "VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING VLLM_FUSED_MOE_CHUNK_SIZE VLLM_SLEEP_WHEN_IDLE",
    "0.18.1": "VLLM_ROCM_CUSTOM_PAGED_ATTN",
    "0.19.1": "VLLM_ENABLE_MOE_DP_CHUNK VLLM_MOE_DP_CHUNK_SIZE",
    "0.21.0": "VLLM_NIXL_ABORT_REQUEST_TIMEOUT",
    "0.22.1": (
        "VLLM_MORIIO_CONNECTOR_READ_MODE VLLM_MORIIO_NUM_WORKERS VLLM_MORIIO_POST_BATCH_SIZE "
        "VLLM_MORIIO_QP_PER_TRANSFER"
    ),
    "0.23.0": (
        "VLLM_FLASHINFER_MOE_BACKEND VLLM_MXFP4_USE_MARLIN VLLM_NVFP4_GEMM_BACKEND VLLM_USE_FBGEMM "
        "VLLM_USE_FLASHINFER_MOE_FP16 VLLM_USE_FLASHINFER_MOE_FP4 VLLM_USE_FLASHINFER_MOE_FP8 "
        "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 "
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS VLLM_USE_NVFP4_CT_EMULATIONS"
    ),
    "0.24.0": "VLLM_ENGINE_ITERATION_TIMEOUT_S",
    "0.27.1": "VLLM_CPU_SGL_KERNEL",
    "0.28.0": "VLLM_TRITON_ATTN_USE_TD",
    "0.29.0": ("VLLM_MM_HASHER_ALGORITHM VLLM_NIXL_EP_MAX_NUM_RANKS VLLM_PREFIX_CACHE_RETENTION_INTERVAL"),
    "0.30.0": (
        "VLLM_KIMI_K3_GEMM_RS VLLM_PLE_CPU_OFFLOAD VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4 "
        "VLLM_XPU_ENABLE_XPU_GRAPH"
    ),
}


@dataclass(frozen=True)
class Gone:
    """Why nothing reads a variable, and what to do instead; "" if there is nothing to do."""

    why: str
    instead: str = ""


_HISTORY = {
    "RAY_num_prestart_python_workers": Gone(
        (
            "num_prestart_python_workers is not a setting of Ray but an argument that Ray itself passes to "
            "its raylet, one for each CPU"
        ),
        "to start fewer workers, give Ray fewer CPUs: ray start --num-cpus, or ray_init.num_cpus in verl's "
        "configuration",
    ),
    "TRANSFORMERS_CACHE": Gone(
        "transformers 5 dropped it", "set HF_HOME, or HF_HUB_CACHE only for the models"
    ),
    "VLLM_WORKER_USE_RAY": Gone(
        "vLLM 0.8.5 and later do not read it, and verl starts the workers itself",
    ),
}

# Replacements for some of the variables above.
_INSTEAD = {
    "VLLM_ALL2ALL_BACKEND": "vLLM's option all2all_backend replaces it",
    "VLLM_ATTENTION_BACKEND": (
        "vLLM's option attention_backend replaces it; without it, vLLM chooses a backend that fits"
    ),
    "VLLM_FLASH_ATTN_VERSION": "vLLM's option attention_config.flash_attn_version replaces it",
    "VLLM_TORCH_PROFILER_DIR": "vLLM's option profiler_config replaces it",
    "VLLM_USE_TRITON_FLASH_ATTN": "it only affected AMD GPUs",
    "VLLM_USE_V1": "vLLM has only the V1 engine now",
}


def what_became_of(name: str) -> Gone | None:
    """Why nothing reads a variable any more, as far as known."""
    if name in _HISTORY:
        return _HISTORY[name]
    for release, names in _LAST_READ.items():
        if name in names.split():
            return Gone(f"vLLM {release} was the last release that did", _INSTEAD.get(name, ""))
    return None

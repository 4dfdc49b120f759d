"""Miniatures of three vLLM releases, as the rules about attention backends would find them."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_requested import AttentionAsked, RequestedBackend

_EVERYWHERE = ("cuda", "rocm")
_V1 = "vllm.v1.attention.backends."

FLASH = Backend(
    name="FLASH_ATTN", path=f"{_V1}flash_attn.FlashAttentionBackend", platforms=("cuda", "rocm", "xpu")
)
FLASHINFER = Backend(
    name="FLASHINFER",
    path=f"{_V1}flashinfer.FlashInferBackend",
    platforms=("cuda",),
    supports_head_size=True,
    head_sizes=(64, 128, 256),
    is_mla=False,
    is_sparse=False,
)
TRITON_MLA = Backend(
    name="TRITON_MLA",
    path=f"{_V1}mla.triton_mla.TritonMLABackend",
    platforms=("cuda", "rocm"),
    is_mla=True,
    is_sparse=False,
)
SDPA = Backend("TORCH_SDPA", platforms=("cuda", "rocm"))
NO_ATTENTION = Backend(
    name="NO_ATTENTION",
    path=f"{_V1}no_attention.NoAttentionBackend",
    problem=f"the module {_V1}no_attention does not exist",
    alias_of="",
    platforms=_EVERYWHERE,
)
CUSTOM = Backend("CUSTOM", alias_of="TORCH_SDPA", platforms=_EVERYWHERE)
ROCM = Backend(name="ROCM_ATTN", path=f"{_V1}rocm_attn.RocmAttentionBackend", platforms=("rocm",))

BY_VARIABLE = AttentionBackends(
    version="0.12.0",
    read_from="/env/vllm/attention/backends/registry.py",
    registry=True,
    backends=(FLASH, FLASHINFER, TRITON_MLA, SDPA, NO_ATTENTION, CUSTOM, ROCM),
    platform="cuda",
    variable_is_read=True,
    variable_is_checked=True,
    options=("mm_encoder_attn_backend",),
    head_size=128,
)
BY_BOTH = AttentionBackends(
    version="0.13.0",
    read_from=BY_VARIABLE.read_from,
    registry=True,
    backends=BY_VARIABLE.backends,
    platform="cuda",
    variable_is_read=True,
    variable_is_checked=True,
    variable_sets_option=True,
    options=("attention_backend", "attention_config.backend", "mm_encoder_attn_backend"),
    head_size=128,
)
BY_OPTION = AttentionBackends(
    version="0.24.0",
    read_from="/env/vllm/v1/attention/backends/registry.py",
    registry=True,
    backends=BY_VARIABLE.backends,
    platform="cuda",
    options=BY_BOTH.options,
    automatic="auto",
    head_size=128,
)
TWO_ENGINES = AttentionBackends(
    version="0.8.5",
    read_from="/env/vllm/platforms/interface.py",
    registry=False,
    backends=(
        Backend("FLASH_ATTN", platforms=("cuda",)),
        Backend("XFORMERS", platforms=("cuda",)),
        Backend("TORCH_SDPA", platforms=("cpu",)),
        Backend("PALLAS", platforms=("tpu",)),
    ),
    platform="cuda",
    variable_is_read=True,
    old_engine_unless=("FLASH_ATTN", "PALLAS"),
)


def variable(name: str) -> AttentionAsked:
    """The variable in a launch script."""
    return AttentionAsked(
        (
            RequestedBackend(
                by="VLLM_ATTENTION_BACKEND",
                name=name,
                written="VLLM_ATTENTION_BACKEND",
                path="/home/me/run.sh",
                line=3,
            ),
        )
    )


def option(name: str, by: str = "attention_backend") -> AttentionAsked:
    """An engine argument in the command of a launch script."""
    key = f"actor_rollout_ref.rollout.engine_kwargs.vllm.{by}"
    return AttentionAsked((RequestedBackend(by=by, name=name, written=key, path="/home/me/run.sh", line=9),))

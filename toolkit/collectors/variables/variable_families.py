"""Which packages may read a variable, judging by its prefix.

It states where to search, and what must be installed to decide.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Variables whose names have a common prefix.

    `sources` are import names of packages whose Python sources may read them, the owner first. `compiled` are
    programs and libraries that may, as patterns below a folder of packages. `owner` must be installed, or
    nothing can be decided: an import name, a pattern of `compiled`, or "" if any program may read them.
    `built` are prefixes of names that compiled code composes at run time, so that they are in no file.
    """

    prefix: str
    sources: tuple[str, ...]
    compiled: tuple[str, ...] = ()
    owner: str = ""
    built: tuple[str, ...] = ()


_NCCL = "nvidia/nccl/lib/libnccl.so*"
_OPENBLAS = ("*.libs/lib*openblas*.so*", "torch/lib/lib*openblas*.so*")
_OPENMP = ("torch/lib/libgomp*", "*.libs/libgomp*", "../../libiomp5.so")
_TORCH = ("torch/lib/libc10*.so", "torch/lib/libtorch*.so")
# A build of torch without CUDA has fewer names than the build on GPU nodes may have.
_TORCH_FOR_GPUS = "torch/lib/libtorch_cuda*.so"
_HUGGING_FACE = (
    "huggingface_hub",
    "transformers",
    "datasets",
    "accelerate",
    "peft",
    "evaluate",
    "trl",
    "diffusers",
)

# As of 2026-11; the order within `compiled` is that of the search.
FAMILIES = (
    Family("HF_", (*_HUGGING_FACE, "vllm", "verl"), ("hf_xet/*.so",), "huggingface_hub", built=("HF_XET_",)),
    Family("MKL_", ("torch", "numpy"), ("../../libmkl_*.so*", *_TORCH)),
    Family("NCCL_", ("vllm", "verl", "torch"), (_NCCL, *_TORCH), _NCCL),
    Family("OMP_", ("verl", "vllm", "ray", "torch"), (*_OPENBLAS, *_OPENMP)),
    Family("OPENBLAS_", ("numpy",), _OPENBLAS),
    Family("PYTORCH_", ("torch", "vllm", "verl"), (*_TORCH, _TORCH_FOR_GPUS), _TORCH_FOR_GPUS),
    Family(
        "RAY_",
        ("ray", "vllm", "verl"),
        ("ray/_raylet*.so", "ray/core/src/ray/raylet/raylet", "ray/core/src/ray/gcs/gcs_server"),
        "ray",
    ),
    Family("SGLANG_", ("sglang", "verl"), (), "sglang"),
    Family("TOKENIZERS_", ("transformers", "tokenizers"), ("tokenizers/*.so",)),
    Family("TORCH", ("torch", "vllm", "verl"), (*_TORCH, _TORCH_FOR_GPUS), _TORCH_FOR_GPUS),
    Family("TRANSFORMERS_", ("transformers", "huggingface_hub", "vllm", "verl"), (), "transformers"),
    Family("TRITON_", ("triton", "torch", "vllm", "verl"), ("triton/_C/libtriton.so",), "triton"),
    Family("VERL_", ("verl",), (), "verl"),
    Family("VLLM_", ("vllm", "verl"), ("vllm/*.so",), "vllm"),
)


def family_of(name: str) -> Family | None:
    """Return the family of a variable, None if its readers are unknown to verl-doctor."""
    return next((family for family in FAMILIES if name.startswith(family.prefix)), None)

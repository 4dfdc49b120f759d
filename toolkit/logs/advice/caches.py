"""Advice on a folder of a package that cannot be written or is full: the variable that names another one."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.advice.places import LONGEST
from verl_doctor.toolkit.logs.python_errors import Raised

_REFUSED = re.compile(
    r"\[Errno (?:5|13|28|30|36|37|116|122)\]|Permission denied|Read-only file system|No space left|"
    r"[Qq]uota exceeded|Stale file handle|not writable|\(os error (?:13|28|30|122)\)"
)
_PATH = re.compile(r"(?<![\w:])(/[^'\"\s:,;()]+)")
# Parts of paths, and what moves the folder. The first that fits counts.
_FOLDERS = tuple(
    (re.compile(part), names)
    for part, names in (
        (r"/\.local/share/wandb(?:/|$)", "WANDB_DATA_DIR"),
        (r"/\.cache/wandb(?:/|$)", "WANDB_CACHE_DIR"),
        (r"/\.config/wandb(?:/|$)", "WANDB_CONFIG_DIR"),
        (r"/wandb(?:_logs)?(?:/|$)|^/tmp/debug-cli", "WANDB_DIR (the command's own log follows TMPDIR)"),
        (r"/\.?cache/huggingface/datasets|/datasets_cache", "HF_DATASETS_CACHE or HF_HOME"),
        (r"/\.cache/huggingface/modules|/transformers_modules/", "HF_MODULES_CACHE or HF_HOME"),
        (r"huggingface", "HF_HOME"),
        (r"/\.cache/modelscope", "MODELSCOPE_CACHE"),
        (r"/\.triton(?:/|$)|/triton(?:_cache)?/", "TRITON_CACHE_DIR"),
        (r"torchinductor", "TORCHINDUCTOR_CACHE_DIR"),
        (r"torch_extensions", "TORCH_EXTENSIONS_DIR"),
        (r"/\.cache/torch(?:/|$)", "TORCH_HOME"),
        (r"/\.cache/vllm|/\.config/vllm", "VLLM_CACHE_ROOT and VLLM_CONFIG_ROOT"),
        (r"/\.cache/flashinfer|/\.flashinfer", "FLASHINFER_WORKSPACE_BASE"),
        (r"/\.cache/sglang|/\.sglang", "SGLANG_CACHE_DIR"),
        (r"/\.deep_gemm|/deep_gemm/", "DG_JIT_CACHE_DIR (DG_CACHE_DIR before)"),
        (r"/\.cache/outlines", "OUTLINES_CACHE_DIR"),
        (r"tiktoken|data-gym-cache", "TIKTOKEN_CACHE_DIR"),
        (r"/\.cache/uv|/\.local/share/uv", "UV_CACHE_DIR"),
        (r"/\.cache/pip", "PIP_CACHE_DIR"),
        (r"/\.conda|/pkgs/", "CONDA_PKGS_DIRS"),
        (r"/\.nv/ComputeCache", "CUDA_CACHE_PATH"),
        (r"matplotlib", "MPLCONFIGDIR"),
        (r"nltk_data", "NLTK_DATA"),
        (r"numba|__pycache__.*\.nb[ic]", "NUMBA_CACHE_DIR"),
        (r"/mlruns(?:/|$)", "MLFLOW_TRACKING_URI"),
        (r"/outputs/\d{4}-\d\d-\d\d", "hydra.run.dir=DIR on the command line"),
        (r"/enroot", "ENROOT_CACHE_PATH, ENROOT_DATA_PATH and ENROOT_TEMP_PATH"),
        (r"/\.apptainer|/\.singularity", "APPTAINER_CACHEDIR and APPTAINER_TMPDIR"),
        (r"^/tmp/ray(?:/|$)|/ray/session_", "RAY_TMPDIR (ray start --temp-dir)"),
        (r"/\.config/", "XDG_CONFIG_HOME"),
        (r"/\.cache/", "XDG_CACHE_HOME"),
        (r"^/(?:var/)?tmp/", "TMPDIR"),
    )
)


def moved_by(raised: Raised) -> str:
    """Return the variable that moves the folder which an exception calls unusable.

    "" if it names none that is known.
    """
    message = raised.message[:LONGEST]
    if raised.name != "PermissionError" and not _REFUSED.search(f"{raised.name}: {message}"):
        return ""
    for path in _PATH.findall(message):
        if names := next((names for part, names in _FOLDERS if part.search(path)), ""):
            return (
                f"set {names.partition(' (')[0]} to a folder that exists, is writable for this user and "
                "has space, for all workers (env_vars of the runtime_env, or before ray start on every "
                "node)"
            ) + (f" ({names.partition(' (')[2]}" if " (" in names else "")
    return ""

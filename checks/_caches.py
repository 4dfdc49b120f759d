"""What the rules about caches share: which of them hold programs, words about them, and facts for their examples."""

from __future__ import annotations

from functools import partial

from verl_doctor.toolkit.fact_caches import CacheFolder, Caches

# Several processes write them at once, and load what they find.
COMPILED = frozenset({"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})
# Libraries that are loaded, so that a mount without programs (noexec) does not do.
PROGRAMS = COMPILED | {"FLASHINFER_WORKSPACE_BASE", "TORCH_EXTENSIONS_DIR"}

TRITON = partial(
    CacheFolder,
    "Triton's kernels",
    "TRITON_CACHE_DIR",
    "/home/me/.triton/cache",
    mounted_on="/",
    kind="ext4",
    is_root=True,
    free=100 << 30,
    files=1_000_000,
)
VLLM = partial(
    CacheFolder,
    "vLLM's compiled models",
    "VLLM_CACHE_ROOT",
    "/home/me/.cache/vllm",
    mounted_on="/home",
    kind="nfs4",
    shared=True,
    free=100 << 30,
)
HUGGING_FACE = partial(
    CacheFolder, "models and data of Hugging Face", "HF_HOME", "/home/me/.cache/huggingface"
)


def here(*folders: CacheFolder, local: str = "/scratch/verl-caches-me") -> Caches:
    """These caches, and a disk of the node."""
    return Caches(folders, local)


def in_words(folder: CacheFolder) -> str:
    """`Triton's kernels (/home/me/.triton/cache)`."""
    return f"{folder.holds} ({folder.path})"


def moved(folder: CacheFolder, local: str) -> str:
    """Where the cache would lie on the node's own disk, as the value of its variable."""
    return f"{local}/{folder.variable.partition('_')[0].lower()}"

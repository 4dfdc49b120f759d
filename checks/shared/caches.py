"""Shared by the rules about caches: which of them hold programs, phrases, and facts for examples."""

from __future__ import annotations

from functools import partial

from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches
from verl_doctor.toolkit.rule import Finding, Subject

# Several processes write these at once, and load what they find.
COMPILED = frozenset({"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})
# Their libraries are loaded, which a noexec mount prevents.
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
    """Facts of an example: these caches, and a local disk of the node."""
    return Caches(folders=folders, local=local)


def in_words(folder: CacheFolder) -> str:
    """The contents and the path: `Triton's kernels (/home/me/.triton/cache)`."""
    return f"{folder.holds} ({folder.path})"


def compiled_and_shared(folder: CacheFolder) -> bool:
    """Whether the folder holds compiled code on a file system shared with other machines."""
    return folder.variable in COMPILED and folder.shared and not folder.is_root


def mount(folder: CacheFolder) -> Subject:
    """The file system of the folder, as the subject of a finding."""
    return Subject("folder", folder.mounted_on, "compiled code")


def cache(folder: CacheFolder) -> Subject:
    """The folder itself, as the subject of a finding."""
    return Subject("folder", folder.path, folder.variable)


def is_about(finding: Finding, folder: CacheFolder) -> bool:
    """Whether a finding is about this cache, or about the file system that holds it and other caches."""
    return finding.subject == cache(folder) or (
        compiled_and_shared(folder) and finding.subject == mount(folder)
    )


def moved(folder: CacheFolder, local: str) -> str:
    """The path of the cache on the node's own disk, as the value of its variable."""
    return f"{local}/{folder.variable.partition('_')[0].lower()}"

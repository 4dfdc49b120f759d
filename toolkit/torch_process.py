"""A process of the target's interpreter after `import torch`, as far as libraries go."""

from __future__ import annotations

import os
from collections.abc import Iterable

from verl_doctor.toolkit.elf_memory import ElfMemory
from verl_doctor.toolkit.linkage import Process
from verl_doctor.toolkit.loader import Loader

_LIBRARIES = ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda", "torch_python")


def start_process(loader: Loader, memory: ElfMemory, sys_path: Iterable[str]) -> Process:
    """The interpreter alone, which knows where torch looks for CUDA's libraries that the loader does not find."""
    process = Process(loader, memory, fallback=tuple(_nvidia_folders(sys_path)))
    closure = process.load(loader.program.path)
    process.everybody += [*closure.paths, loader.header.interpreter]
    return process


def load_torch(process: Process, folder: str) -> tuple[str, ...]:
    """Load what `import torch` loads, first for everybody what its libraries depend on (torch/__init__.py); say what that is."""
    for_all = f"{folder}/lib/libtorch_global_deps.so"
    if os.path.exists(for_all):
        process.everybody += process.load(for_all).paths
    found: dict[str, None] = {}
    for name in _LIBRARIES:
        if os.path.exists(path := f"{folder}/lib/lib{name}.so"):
            found.update(dict.fromkeys(process.load(path).paths))
    return tuple(found)


def _nvidia_folders(sys_path: Iterable[str]) -> list[str]:
    """The folders of `_preload_cuda_deps` in torch/__init__.py."""
    folders: list[str] = []
    for site in sys_path:
        try:
            names = sorted(os.listdir(f"{site}/nvidia"))  # noqa: PTH208 - names alone
        except OSError:
            continue
        folders += [f"{site}/nvidia/{name}/lib" for name in names]
    return folders

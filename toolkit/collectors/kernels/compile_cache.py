"""Whether compiled code is cached atomically, so that engines starting together cannot read half of it.

torch does so since pytorch/pytorch#162432 (2.10), and vLLM from 0.17 on for an older torch
(vllm-project/vllm#31199).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import TorchTree, Tree, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, read

SWITCHED_OFF_BY = "VLLM_DISABLE_COMPILE_CACHE"
_WRITES_WHOLE = b"write_atomic("
_IN_TORCH = "_inductor/standalone_compile.py"
_IN_VLLM = "compilation/compiler_interface.py"


@dataclass(frozen=True)
class CompileCache:
    """The package that ensures it ("torch 2.11.0") as `written_whole_by`, and its file as `read_from`.

    `written_whole_by` is "" if no package does.
    """

    torch: str
    written_whole_by: str = ""
    read_from: str = ""


@collector(kept=True)
def compile_cache(torch: TorchTree, vllm: VllmTree | Unknown) -> CompileCache | Unknown:
    """Search for the call in the one file of each package that saves compiled code."""
    if isinstance(vllm, Unknown) or not os.path.isfile(Path(vllm.tree.folder) / _IN_VLLM):
        return Absent("no installed vLLM compiles models")
    for name, tree, file in (("torch", torch.tree, _IN_TORCH), ("vLLM", vllm.tree, _IN_VLLM)):
        if path := _writes_whole(tree, file):
            return CompileCache(torch.tree.version, f"{name} {tree.version}", path)
    return CompileCache(torch.tree.version)


def _writes_whole(tree: Tree, file: str) -> str:
    path = Path(tree.folder) / file
    source = read(path)
    return "" if isinstance(source, Unreadable) or _WRITES_WHOLE not in source else str(path)

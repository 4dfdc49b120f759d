"""How this vLLM handles torch's expandable segments, incompatible with its sleep mode's memory pool.

The incompatibility is pytorch/pytorch#147851. vLLM rejects them since #14189, and switches them off for the
pool since #40812.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, walk

CONFIGURATIONS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_SEGMENTS = "expandable_segments"
_ALLOCATOR = "device_allocator/cumem.py"
# From vLLM 0.31.0 on the allocator reads torch's settings through this neighbour.
_NEIGHBOUR = "device_allocator/alloc_conf.py"


@dataclass(frozen=True)
class SleepAllocator:
    """`does`: it "refuses" to start, "switches" them off while the pool is in use, or "ignores" them.

    `looks_at` are the variables in which it would find them; torch reads others, too.
    """

    version: str
    read_from: str
    does: Literal["refuses", "switches", "ignores"]
    looks_at: tuple[str, ...] = ()


@collector(kept=True)
def sleep_allocator(vllm: VllmTree) -> SleepAllocator | Unknown:
    """Read the allocator's source: an assertion about expandable segments, or other code about them."""
    folder = Path(vllm.tree.folder)
    path = folder / _ALLOCATOR
    if not os.path.isfile(path):
        return Absent(f"vLLM {vllm.tree.version} has no allocator for a sleep mode")
    found = _read(path)
    if isinstance(found, Unreadable):
        return Unknown(found.reason)
    neighbour = _read(folder / _NEIGHBOUR)
    refuses, texts = found
    texts |= set() if isinstance(neighbour, Unreadable) else neighbour[1]
    if not any(_SEGMENTS in text for text in texts):
        return SleepAllocator(vllm.tree.version, str(path), "ignores")
    looks_at = tuple(name for name in CONFIGURATIONS if name in texts)
    return SleepAllocator(vllm.tree.version, str(path), "refuses" if refuses else "switches", looks_at)


def _read(path: Path) -> tuple[bool, set[str]] | Unreadable:
    """Return whether an assertion is about expandable segments, and the code's strings but no docstrings."""
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return tree
    nodes = list(walk(tree))
    words = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    refuses = any(isinstance(node, ast.Assert) and _SEGMENTS in ast.unparse(node.test) for node in nodes)
    strings = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in words)
    return refuses, {node.value for node in strings if isinstance(node.value, str)}

"""How the verl that would be imported treats AMD's visible-device variables.

Schedulers also set these variables for NVIDIA GPUs.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, text_of, walk

VARIABLES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""HIP's is compared with CUDA_VISIBLE_DEVICES, ROCR's may not be set together with it."""

_FILE = ("single_controller", "base", "worker.py")
_LONGEST = 10_000  # characters of a statement


@dataclass(frozen=True)
class ForeignDevices:
    """`refused` are the variables at which a worker stops, `read_from` is the file that does so."""

    refused: tuple[str, ...]
    read_from: str


@collector(kept=True)
def foreign_devices(trees: VerlTrees) -> ForeignDevices | Unknown:
    """Find an assertion or exception that names a variable, among verl's own code for its workers."""
    path = Path(trees.imported.folder, *_FILE)
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    stops = [text_of(node, _LONGEST) for node in walk(tree) if isinstance(node, (ast.Assert, ast.Raise))]
    refused = tuple(name for name in VARIABLES if any(name in stop for stop in stops))
    return ForeignDevices(refused, str(path))

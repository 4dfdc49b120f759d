"""The engine arguments that verl's vLLM server takes from the rollout's settings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"


def handed_arguments(server: Path) -> Iterator[tuple[str, str]]:
    """Yield the entries `"name": self.config.name` of the table that verl's server builds."""
    tree = parsed(server)
    for node in walk(tree) if isinstance(tree, ast.Module) else ():
        if not isinstance(node, ast.Dict) or not any(
            isinstance(key, ast.Constant) and key.value == "gpu_memory_utilization" for key in node.keys
        ):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            name = dotted(value)
            if isinstance(key, ast.Constant) and name.startswith("self.config."):
                yield str(key.value), name.removeprefix("self.config.")

"""Whether this vLLM reduces tensors by torch's symmetric memory, where verl gives each rank its own GPU."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import dotted, parsed, read, walk

VARIABLE = "VLLM_ALLREDUCE_USE_SYMM_MEM"
_COMMUNICATOR = ("distributed", "device_communicators", "symm_mem.py")
_SERVER = ("workers", "rollout", "vllm_rollout", "vllm_async_server.py")
# Executors whose ranks are verl's own workers. Ray shows each of them one GPU, numbered 0.
_VERLS_WORKERS = (b"ExternalZeroMQDistributedExecutor", b"ExternalRayDistributedExecutor")


@dataclass(frozen=True)
class SymmetricMemory:
    """Whether vLLM uses symmetric memory unless disabled (`on`), and whether that fails.

    `stops`: a failure to set it up ends the engine, in `read_from`. `in_workers`: the ranks are workers of
    verl that see one GPU each, which causes such a failure.
    """

    on: bool
    stops: bool
    in_workers: bool
    read_from: str


@collector(kept=True)
def symmetric_memory(vllm: VllmTree, verl: VerlTrees) -> SymmetricMemory | Unknown:
    """Read the variable's default, vLLM's communicator, and verl's server."""
    folder = Path(vllm.tree.folder)
    path = folder.joinpath(*_COMMUNICATOR)
    if not os.path.isfile(path):
        return Absent("this vLLM has no all-reduce through symmetric memory")
    files = path, folder / "envs.py", Path(verl.imported.folder, *_SERVER)
    return remembered(SymmetricMemory, "", files, partial(_read, *files))


def _read(path: Path, envs: Path, server_path: Path) -> SymmetricMemory | Unknown:
    communicator, variables, server = parsed(path), parsed(envs), read(server_path)
    if communicator is None or variables is None:
        return Unknown(f"{path} or {envs} cannot be read")
    return SymmetricMemory(
        on="1" in _defaults(variables),
        stops=_meets_unguarded(communicator),
        in_workers=isinstance(server, bytes) and any(name in server for name in _VERLS_WORKERS),
        read_from=str(path),
    )


def _defaults(variables: ast.Module) -> Iterator[str]:
    """Yield the second argument of os.getenv for the variable."""
    for node in walk(variables):
        match node:
            case ast.Call(args=[ast.Constant(value=name), ast.Constant(value=str(value))]) if (
                name == VARIABLE and dotted(node.func) in ("os.getenv", "os.environ.get")
            ):
                yield value


def _meets_unguarded(communicator: ast.Module) -> bool:
    """Return whether the ranks call `rendezvous` where no exception is caught."""
    guarded = {
        id(inner)
        for node in walk(communicator)
        if isinstance(node, ast.Try)
        for statement in node.body
        for inner in walk(statement)
    }
    calls = (node for node in walk(communicator) if isinstance(node, ast.Call))
    return any(dotted(call.func).endswith(".rendezvous") and id(call) not in guarded for call in calls)

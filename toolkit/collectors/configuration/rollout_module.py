"""The package of verl that starts vLLM, and the environment variables that it sets itself."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file

# In every verl from 0.2 to 0.9.1; importing any module of the package runs this first.
_MODULE = "workers/rollout/vllm_rollout/__init__.py"


@dataclass(frozen=True)
class RolloutModule:
    """The variables that the package's first file sets if unset (`os.environ.setdefault`), as `defaults`."""

    path: str
    defaults: Mapping[str, str] = field(default_factory=dict)


@collector(kept=True)
def rollout_module(trees: VerlTrees) -> RolloutModule | Unknown:
    """Read the module's top-level statements."""
    path = Path(trees.imported.folder, _MODULE)
    if not os.path.isfile(path):
        return Absent(f"{trees.imported.folder} has no {_MODULE}")
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    return RolloutModule(str(path), dict(_defaults(tree)))


def _defaults(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id="os"), attr="environ"), attr="setdefault"
                    ),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(value))],
                )
            ):
                yield name, value

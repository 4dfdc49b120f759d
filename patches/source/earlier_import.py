"""Fix for VLLM102: import a function under its name in an older vLLM.

verl from 0.7.1 on imports `process_weights_after_loading`, which vLLM up to 0.8.5 calls
`_process_weights_after_loading`. An empty stub would let quantised and MLA models compute with weights that
were never prepared.
"""

from __future__ import annotations

import ast
from pathlib import Path

from verl_doctor.checks.api._vllm_renames import EARLIER
from verl_doctor.patches.source._imports import replaced_imports
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.python.source import parse

CODE = "VLLM102"


@fix(
    "earlier-import",
    repairs=CODE,
    safety="safe",
    upstream="verl-project/verl#4202",
    needed="vllm<=0.8.5",
    restart="running Ray workers, which keep the old code",
)
def earlier_import(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Import a function under its name in an older vLLM.

    Refused unless that function exists.
    """

    def successor(use: ApiUse, _tree: ast.Module, _local: str) -> tuple[str, str]:
        module, name = EARLIER.get(use.name, ("", ""))
        if not name or not _is_there(module, name, uses, sources):
            raise CannotEdit(f"{use.last} has no known other name in this vLLM")
        return module, name

    return replaced_imports(finding, uses.uses, sources, marker.comment(CODE), successor)


def _is_there(module: str, name: str, uses: VllmUses, sources: SourceFiles) -> bool:
    path = Path(uses.library.folder).joinpath(*module.split(".")[1:]).with_suffix(".py")
    source = sources.read(str(path))
    tree = parse(source, path) if isinstance(source, bytes) else source
    found = tree.body if isinstance(tree, ast.Module) else []
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in found)

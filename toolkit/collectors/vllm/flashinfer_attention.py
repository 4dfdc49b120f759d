"""Whether the vLLM of the target uses FlashInfer for attention on this machine's GPUs by default."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Capability
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR, returned
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file

NAME = "FLASHINFER"
_CHOOSES = "platforms/cuda.py"
# From vLLM 0.11.2 on: the backends that it tries, best first, for a capability and a model's needs.
_PRIORITIES = "_get_backend_priorities"


@dataclass(frozen=True)
class FlashInferAttention:
    """The backend that vLLM tries `first` for a model without latent attention.

    `read_from` is the file that shows it.
    """

    version: str
    first: str
    read_from: str

    @property
    def by_default(self) -> bool:
        """Whether FlashInfer's backend is first."""
        return self.first == NAME


@collector()
def flashinfer_attention(
    vllm: VllmTree, platform: VllmPlatform, flashinfer: FlashInfer
) -> FlashInferAttention | Unknown:
    """Follow the function that ranks the backends, for these GPUs."""
    if platform.name != "cuda":
        return Absent(f"this vLLM runs on {platform.name}, and FlashInfer on CUDA")
    path = Path(vllm.tree.folder) / _CHOOSES
    tree = parse_file(path)
    if isinstance(tree, Unreadable):
        return Unknown(tree.reason)
    ranks = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _PRIORITIES)
    function = next(ranks, None)
    # A causal language model, with no image at the front of its prompt.
    requested = {
        "use_mla": False,
        "device_capability": Capability.read(flashinfer.capability),
        "use_non_causal": False,
        "use_mm_prefix": False,
    }
    first = (
        None
        if function is None
        else returned(_FirstOfList().visit(copy.deepcopy(function)), requested, lambda *_: UNCLEAR)
    )
    if not isinstance(first, str):
        return Unknown(f"vLLM {vllm.tree.version} ranks its attention backends in an unknown way")
    return FlashInferAttention(vllm.tree.version, first, str(path))


class _FirstOfList(ast.NodeTransformer):
    """Makes a function return the name of the first backend of the list that it would return."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        elements = node.value.elts if isinstance(node.value, ast.List) else []
        name = next((element.attr for element in elements if isinstance(element, ast.Attribute)), None)
        return node if name is None else ast.Return(ast.Constant(name))

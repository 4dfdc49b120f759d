"""Which sampler a vLLM takes, worked out from its sources: `TopKTopPSampler` chooses its `forward` when it is made.

The conditions changed with nearly each release: a default of the variable, versions of FlashInfer, what the GPU can do.
"""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.fact_resources import Capability
from verl_doctor.toolkit.fact_trees import Tree
from verl_doctor.toolkit.fact_vllm_sampler import VARIABLE
from verl_doctor.toolkit.py_evaluate import UNCLEAR, returned
from verl_doctor.toolkit.py_source import SourceTree, Unreadable, dotted, parse, read, statements, walk

SAMPLER = "v1.sample.ops.topk_topp_sampler"
_SECOND_RUNNER = "v1.worker.gpu.sample.sampler"
_BACKEND = "v1.attention.backends.flashinfer"
_ASKS = "flashinfer_sampler_supported"
_METHODS = ("forward_native", "forward_cuda", "forward_cpu", "forward_tpu", "forward_hip", "forward_xpu")
# FlashInfer 0.7 refuses GPUs with no more than 16 multiprocessors; of those that train only a Jetson is so small.
_MULTIPROCESSORS = 64


class SamplerReader:
    """One look into one vLLM tree, for GPUs of one kind and one release of FlashInfer beside it."""

    def __init__(self, tree: Tree, capability: Capability, flashinfer: str) -> None:
        self._sources = SourceTree(Path(tree.folder), tree.module)
        self._capability = capability
        self._flashinfer = flashinfer
        self._sampler = self._module(SAMPLER)

    @property
    def path(self) -> str:
        """The file that chooses the sampler; empty when this vLLM has none there."""
        found = self._sources.locate(f"{self._sources.name}.{SAMPLER}")
        return str(found.path) if found else ""

    def takes_flashinfer(self, value: str | None, *, processed: bool) -> bool | None:
        """Whether the sampler would be FlashInfer's, with this value of the variable; None when that cannot be told.

        `processed`: log probabilities are wanted as they are after top-k and top-p, which FlashInfer does not give out.
        """
        switch = self._switch(value)
        if self._sampler is None or switch is UNCLEAR:
            return None
        if self._supported() is False:
            return False
        init = _method(self._sampler, "TopKTopPSampler", "__init__")
        if init is None:
            return None
        chosen = returned(_Chooses(processed).made_of(init), self._names(switch), self._call(switch))
        return chosen == "forward_cuda" if isinstance(chosen, str) else None

    def second_runner_asks(self) -> bool:
        """Whether there is a second model runner that asks for FlashInfer's sampler, whatever the log probabilities."""
        runner = self._module(_SECOND_RUNNER)
        return runner is not None and any(
            isinstance(node, ast.Call) and dotted(node.func) == _ASKS for node in walk(runner)
        )

    def _switch(self, value: str | None) -> Any:
        """What `envs` makes of the variable: its entry in the table, evaluated."""
        if value is not None:
            return bool(int(value)) if value.strip().isdigit() else UNCLEAR
        envs = self._module("envs")
        for node in walk(envs) if envs is not None else ():
            if isinstance(node, ast.Dict):
                for key, entry in zip(node.keys, node.values, strict=True):
                    if (
                        isinstance(key, ast.Constant)
                        and key.value == VARIABLE
                        and isinstance(entry, ast.Lambda)
                    ):
                        return returned(_returning(entry.body), {"os": _with(environ=())}, _default)
        return UNCLEAR

    def _names(self, switch: object) -> dict[str, Any]:
        return {
            "self": _with(**{name: name for name in _METHODS}),
            "envs": _with(**{VARIABLE: switch}),
            "flashinfer": _with(__version__=self._flashinfer),
            "is_flashinfer_available": bool(self._flashinfer),
        }

    def _call(self, switch: object) -> Any:
        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            owner, _, method = name.rpartition(".")
            if owner == "current_platform" and method.startswith("is_"):
                return method == "is_cuda"
            match method:
                case "get_device_capability":
                    return self._capability
                case "supports_compute_capability":
                    return self._supported()
                case "num_compute_units" | "current_device_index":
                    return _MULTIPROCESSORS
                case "_flashinfer_jit_unsupported_reason":
                    return None  # the compiler is judged by rules of its own
                case "parse":
                    return _version(str(arguments[0])) if arguments else UNCLEAR
                case "flashinfer_sampler_supported" if self._sampler is not None:
                    asked = next(
                        (
                            node
                            for node in self._sampler.body
                            if isinstance(node, ast.FunctionDef) and node.name == _ASKS
                        ),
                        None,
                    )
                    return UNCLEAR if asked is None else returned(asked, self._names(switch), call)
            return UNCLEAR

        return call

    def _supported(self) -> Any:
        """What vLLM's own class says of these GPUs."""
        backend = self._module(_BACKEND)
        method = backend and _method(backend, "FlashInferBackend", "supports_compute_capability")
        if not method:
            return UNCLEAR

        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            return Capability(*arguments) if name == "DeviceCapability" and len(arguments) == 2 else UNCLEAR

        return returned(method, {"capability": self._capability}, call)

    def _module(self, name: str) -> ast.Module | None:
        found = self._sources.locate(f"{self._sources.name}.{name}")
        source = read(found.path) if found is not None else None
        if found is None or source is None or isinstance(source, Unreadable):
            return None
        parsed = parse(source, found.path)
        return None if isinstance(parsed, Unreadable) else parsed


class _Chooses(ast.NodeTransformer):
    """Makes of a constructor a function that returns the name of the method which becomes `forward`."""

    def __init__(self, processed: bool) -> None:
        self._processed = processed

    def made_of(self, init: ast.FunctionDef) -> ast.FunctionDef:
        changed: ast.FunctionDef = self.visit(copy.deepcopy(init))
        return changed

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node.targets:
            case [ast.Attribute(value=ast.Name(id="self"), attr="forward")]:
                return ast.Return(node.value)
            case [ast.Attribute()]:
                return ast.Pass()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(left=ast.Name(id="logprobs_mode"), ops=[ast.NotIn()]):
                return ast.Constant(not self._processed)
        return node


def _method(module: ast.Module, owner: str, name: str) -> ast.FunctionDef | None:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            found = (part for part in statements(node) if isinstance(part, ast.FunctionDef))
            return next((part for part in found if part.name == name), None)
    return None


def _returning(value: ast.expr) -> ast.FunctionDef:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.FunctionDef(name="", args=nothing, body=[ast.Return(value)], decorator_list=[])


def _default(name: str, arguments: tuple[Any, ...]) -> Any:
    """Calls in an entry of the table, for a variable that is not set."""
    match name, arguments:
        case "os.getenv" | "os.environ.get", (_, default):
            return default
        case "int" | "bool", (value,):
            return int(value) if name == "int" else bool(value)
    return UNCLEAR


def _with(**fields: object) -> Any:
    """An object that `returned` looks into."""
    return SimpleNamespace(_fields=tuple(fields), **fields)


def _version(text: str) -> Any:
    try:
        return Version(text)
    except InvalidVersion:
        return UNCLEAR

"""Determines a vLLM's sampler from its sources: `TopKTopPSampler` chooses `forward` in its constructor.

The conditions changed with nearly every release: the variable's default, versions of FlashInfer, capabilities
of the GPU.
"""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.host.resources import Capability
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.vllm.sampler import VARIABLE
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR, Call, returned
from verl_doctor.toolkit.sources.python.source import (
    SourceTree,
    Unreadable,
    dotted,
    parse,
    read,
    statements,
    walk,
)

SAMPLER = "v1.sample.ops.topk_topp_sampler"
_SECOND_RUNNER = "v1.worker.gpu.sample.sampler"
_BACKEND = "v1.attention.backends.flashinfer"
_CALLS = "flashinfer_sampler_supported"
_METHODS = ("forward_native", "forward_cuda", "forward_cpu", "forward_tpu", "forward_hip", "forward_xpu")
# FlashInfer 0.7 refuses GPUs with no more than 16 multiprocessors; of GPUs used for training only a Jetson is
# so small.
_MULTIPROCESSORS = 64


class SamplerReader:
    """One read of one vLLM tree, for GPUs of one kind and one installed release of FlashInfer."""

    def __init__(self, tree: Tree, capability: Capability, flashinfer: str) -> None:
        self._sources = SourceTree(Path(tree.folder), tree.module)
        self._capability = capability
        self._flashinfer = flashinfer
        self._parsed: dict[str, ast.Module | None] = {}
        self._sampler = self._module(SAMPLER)

    @property
    def path(self) -> str:
        """Return the file that chooses the sampler; empty if this vLLM has none there."""
        found = self._sources.locate(f"{self._sources.name}.{SAMPLER}")
        return str(found.path) if found else ""

    def takes_flashinfer(self, value: str | None, *, processed: bool) -> bool | None:
        """Return whether the sampler would be FlashInfer's, with this value of the variable; None if unknown.

        `processed`: log probabilities after top-k and top-p are requested, which FlashInfer does not return.
        """
        switch = self._switch(value)
        if self._sampler is None or switch is UNCLEAR:
            return None
        if self._supported() is False:
            return False
        init = _function(self._sampler, "__init__", "TopKTopPSampler")
        if init is None:
            return None
        chosen = returned(_Chooses(processed).made_of(init), self._names(switch), self._call(switch))
        return chosen == "forward_cuda" if isinstance(chosen, str) else None

    def second_runner_requires(self) -> bool:
        """Return whether a second model runner needs FlashInfer's sampler, whatever the log probabilities."""
        runner = self._module(_SECOND_RUNNER)
        return runner is not None and any(
            isinstance(node, ast.Call) and dotted(node.func) == _CALLS for node in walk(runner)
        )

    def _switch(self, value: str | None) -> Any:
        """Evaluate the variable's entry in the table of `envs`."""
        if value is not None:
            return bool(int(value)) if value.strip().isdecimal() else UNCLEAR
        tables = (node for node in walk(self._module("envs") or ast.Pass()) if isinstance(node, ast.Dict))
        for table in tables:
            for key, entry in zip(table.keys, table.values, strict=True):
                match key, entry:
                    case ast.Constant(value=name), ast.Lambda(body=body) if name == VARIABLE:
                        return returned(_returning(body), {"os": _with(environ=())}, _default)
        return UNCLEAR

    def _names(self, switch: object) -> dict[str, Any]:
        return {
            "self": _with(**{name: name for name in _METHODS}),
            "envs": _with(**{VARIABLE: switch}),
            "flashinfer": _with(__version__=self._flashinfer),
            "is_flashinfer_available": bool(self._flashinfer),
        }

    def _call(self, switch: object) -> Call:
        """Return an evaluator of the calls in the constructor and in the function that it calls."""

        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            owner, _, method = name.rpartition(".")
            if owner == "current_platform" and method.startswith("is_"):
                return method == "is_cuda"
            if method == _CALLS:
                function = self._sampler and _function(self._sampler, _CALLS)
                return returned(function, self._names(switch), call) if function else UNCLEAR
            match method:
                case "get_device_capability":
                    return self._capability
                case "supports_compute_capability":
                    return self._supported()
                case "num_compute_units" | "current_device_index":
                    return _MULTIPROCESSORS
                case "_flashinfer_jit_unsupported_reason":
                    return None  # other rules judge the compiler
                case "parse":
                    return _version(arguments)
            return UNCLEAR

        return call

    def _supported(self) -> Any:
        """Return what vLLM's own class reports for these GPUs."""
        backend = self._module(_BACKEND)
        method = backend and _function(backend, "supports_compute_capability", "FlashInferBackend")
        if not method:
            return UNCLEAR

        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            return Capability(*arguments) if name == "DeviceCapability" and len(arguments) == 2 else UNCLEAR

        return returned(method, {"capability": self._capability}, call)

    def _module(self, name: str) -> ast.Module | None:
        if name not in self._parsed:
            self._parsed[name] = self._read(f"{self._sources.name}.{name}")
        return self._parsed[name]

    def _read(self, name: str) -> ast.Module | None:
        found = self._sources.locate(name)
        source = read(found.path) if found is not None else None
        if found is None or source is None or isinstance(source, Unreadable):
            return None
        parsed = parse(source, found.path)
        return None if isinstance(parsed, Unreadable) else parsed


class _Chooses(ast.NodeTransformer):
    """Turns a constructor into a function that returns the name of the method assigned to `forward`."""

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


def _function(module: ast.Module, name: str, owner: str = "") -> ast.FunctionDef | None:
    """Return a function of a module, or a method of one of its classes."""
    for node in statements(module):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            return _function(ast.Module(node.body, []), name)
        if isinstance(node, ast.FunctionDef) and node.name == name and not owner:
            return node
    return None


def _returning(value: ast.expr) -> ast.FunctionDef:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.FunctionDef(name="", args=nothing, body=[ast.Return(value)], decorator_list=[])


def _default(name: str, arguments: tuple[Any, ...]) -> Any:
    """Evaluate calls in an entry of the table, for an unset variable."""
    match name, arguments:
        case "os.getenv" | "os.environ.get", (_, default):
            return default
        case "int" | "bool", (value,):
            return int(value) if name == "int" else bool(value)
    return UNCLEAR


def _with(**fields: object) -> Any:
    """Return an object for `returned` to inspect."""
    return SimpleNamespace(_fields=tuple(fields), **fields)


def _version(arguments: tuple[Any, ...]) -> Any:
    try:
        return Version(*arguments)
    except (InvalidVersion, TypeError):
        return UNCLEAR

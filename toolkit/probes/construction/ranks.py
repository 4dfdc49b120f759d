"""One rank of a world of any size.

A process group without other members, and FSDP's layout of a module without weights.

FSDP2 is torch's own `fully_shard` on `meta`. FSDP1 moves weights to a GPU while it wraps; a stand-in wraps by
torch's own recursion and records how many elements each flat parameter has on this rank.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.stages import NotJudgedError

_HALF = 2  # bytes of an element of the usual compute type
_ALIGNMENT = 16  # bytes: FSDP1's alignment of each parameter that keeps its own form


@dataclass
class Laid:
    """A module that FSDP distributed over the world: what this rank keeps of it.

    `gathered` are the bytes of the outermost unit and the largest other unit, unsharded and in the compute
    type: they are on the GPU at the same time. `always_away`: FSDP itself keeps everything in the host's
    memory.
    """

    kind: str
    shards: int = 1
    units: int = 0
    gathered: int = 0
    always_away: bool = False


@dataclass
class Recorder:
    """The modules distributed over the world, newest last, and the meshes made, by name and dimensions."""

    laid: list[Laid] = field(default_factory=list)
    meshes: dict[str, dict[str, int]] = field(default_factory=dict)

    def mesh(self, name: str, mesh: Any) -> None:
        """Record the dimensions of a mesh."""
        if mesh is not None:
            names = mesh.mesh_dim_names or [str(number) for number in range(mesh.ndim)]
            self.meshes[name] = {dim: mesh.size(number) for number, dim in enumerate(names)}

    def stand_in(self, stack: ExitStack, module: Any) -> None:
        """Replace the functions with which a module of verl distributes models over GPUs."""
        stack.enter_context(mock.patch.object(module, "FSDP", self._flat_class()))
        for name in ("get_device_id", "get_torch_device"):
            if hasattr(module, name):
                stand_in = mock.MagicMock(return_value=0) if name == "get_device_id" else mock.MagicMock()
                stack.enter_context(mock.patch.object(module, name, stand_in))
        if hasattr(module, "fsdp2_load_full_state_dict"):
            stack.enter_context(mock.patch.object(module, "fsdp2_load_full_state_dict"))
        if hasattr(module, "apply_fsdp2"):
            apply = module.apply_fsdp2

            def applied(model: Any, fsdp_kwargs: Any, *more: Any, **named: Any) -> Any:
                with _on_meta_only():
                    answer = apply(model, fsdp_kwargs, *more, **named)
                self.laid.append(_of_fsdp2(model, fsdp_kwargs))
                return answer

            stack.enter_context(mock.patch.object(module, "apply_fsdp2", applied))

    def _flat_class(self) -> Any:
        """Return a class with FSDP1's call signature."""
        from torch import nn

        recorder = self

        class Flat(nn.Module):  # type: ignore[misc]  # torch is not here
            def __init__(self, module: Any, *_: Any, **given: Any) -> None:
                super().__init__()
                laid, flats = _of_fsdp1(module, given)
                recorder.laid.append(laid)
                self._fsdp_wrapped_module = module
                self._flats = nn.ParameterList(flats)

            def __getattr__(self, name: str) -> Any:
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self._fsdp_wrapped_module, name)

            def parameters(self, recurse: bool = True) -> Iterator[Any]:  # noqa: ARG002 - as torch has it
                return iter(self._flats)

            @staticmethod
            def set_state_dict_type(*_: Any, **__: Any) -> None:
                """Do nothing: nothing is saved here."""

        return Flat


@contextlib.contextmanager
def rank_of(size: int, local: int) -> Iterator[None]:
    """Act as rank 0 of a world of `size` ranks, `local` of them on a node, without waiting for the others."""
    import torch.distributed as dist

    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise NotJudgedError(f"this torch has no process group for trials: {error}") from None
    if dist.is_initialized():
        raise NotJudgedError("a process group exists already")
    names = {"RANK": "0", "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(local)}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    with mock.patch.dict(os.environ, names):
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        try:
            yield
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def models_of_shapes(built: list[Any]) -> Iterator[None]:
    """Make `from_pretrained` build models on `meta` from their configuration alone; `built` collects them.

    The attention is the simplest one: none changes a shape, and some require a GPU.
    """
    import torch
    from transformers import PreTrainedModel

    def empty(cls: Any, /, _path: Any = None, *_: Any, config: Any = None, **more: Any) -> Any:
        dtype = more.get("torch_dtype", more.get("dtype"))
        given = {} if dtype is None else {"torch_dtype": dtype}
        with torch.device("meta"):
            model = cls._from_config(config, attn_implementation="eager", **given)
        built.append(model)
        return model

    with mock.patch.object(PreTrainedModel, "from_pretrained", classmethod(empty)):
        yield


def bytes_of(tensors: Any) -> int:
    """Return the bytes of tensors on this rank, counting each once."""
    each = {id(tensor): tensor for tensor in tensors}
    return sum(local(tensor).numel() * tensor.element_size() for tensor in each.values())


def local(tensor: Any) -> Any:
    """Return this rank's part of a distributed tensor."""
    return getattr(tensor, "_local_tensor", tensor)


@contextlib.contextmanager
def _on_meta_only() -> Iterator[None]:
    """Make FSDP2 use `meta` as its device, and split a tensor without making the parts of all other ranks."""
    import torch

    names = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
    shard = next((found for name in names if (found := _attribute(name, "fully_shard"))), None)
    if shard is None:
        raise NotJudgedError("this torch has no FSDP2")
    module = sys.modules[inspect.unwrap(shard).__module__]
    parameters = _attribute(f"{module.__package__}._fsdp_param", "FSDPParam")
    with ExitStack() as stack:
        if not hasattr(module, "_get_device_from_mesh"):
            raise NotJudgedError("FSDP2 of this torch takes its device from elsewhere")
        device = torch.device("meta")
        stack.enter_context(mock.patch.object(module, "_get_device_from_mesh", return_value=device))
        place = sys.modules[parameters.__module__] if parameters is not None else None
        if place is not None and hasattr(place, "_chunk_with_empty"):
            stack.enter_context(mock.patch.object(place, "_chunk_with_empty", _Chunks))
        yield


def _attribute(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


class _Chunks:
    """The parts of a tensor, as `torch.chunk` makes them, each made on access: there may be a thousand."""

    def __init__(self, tensor: Any, number: int, dim: int) -> None:
        self._tensor, self._number, self._dim = tensor, number, dim
        self._size = -(-tensor.size(dim) // number)

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Any:
        whole = self._tensor.size(self._dim)
        begin = min(index * self._size, whole)
        return self._tensor.narrow(self._dim, begin, min(self._size, whole - begin))


def _of_fsdp2(model: Any, given: Mapping[str, Any]) -> Laid:
    from torch.distributed.tensor import DTensor

    mesh = given.get("mesh")
    units: dict[int, list[Any]] = {}
    owners = [module for module in model.modules() if hasattr(module, "_get_fsdp_state")]
    for module in reversed(owners):  # the innermost first: each parameter belongs to a single unit
        taken = {id(parameter) for group in units.values() for parameter in group}
        units[id(module)] = [
            parameter
            for parameter in module.parameters()
            if id(parameter) not in taken and isinstance(parameter, DTensor)
        ]
    policy = type(given.get("offload_policy")).__name__
    width = _width(given.get("mp_policy"))
    return Laid(
        kind="fsdp2",
        shards=mesh.size(mesh.ndim - 1) if mesh is not None else 1,
        units=len(units),
        gathered=_at_once(
            [sum(parameter.numel() for parameter in group) * width for group in units.values()]
        ),
        always_away=policy == "CPUOffloadPolicy",
    )


def _of_fsdp1(module: Any, given: Mapping[str, Any]) -> tuple[Laid, list[Any]]:
    """Return how FSDP1 would wrap a module, and its flat parameters on this rank."""
    import torch
    from torch import nn

    class Unit(nn.Module):  # type: ignore[misc]  # torch is not here
        def __init__(self, module: Any, **_: Any) -> None:
            super().__init__()
            self.module = module

    policy = given.get("auto_wrap_policy")
    if policy is not None:
        _wrap_children(module, policy, Unit)
    owners = [parameter for parameter in module.modules() if isinstance(parameter, Unit)]
    shards = _shards(given)
    aligned = bool(given.get("use_orig_params"))
    flats: list[Any] = []
    sizes: list[int] = []
    taken: set[int] = set()
    for owner in [*reversed(owners), module]:
        own = [parameter for parameter in owner.parameters() if id(parameter) not in taken]
        taken.update(map(id, own))
        sizes.append(sum(parameter.numel() for parameter in own) * _width(given.get("mixed_precision")))
        for dtype, needs in dict.fromkeys((parameter.dtype, parameter.requires_grad) for parameter in own):
            same = [
                parameter.numel()
                for parameter in own
                if (parameter.dtype, parameter.requires_grad) == (dtype, needs)
            ]
            step = max(_ALIGNMENT // dtype.itemsize, 1) if aligned else 1
            number = sum(-(-size // step) * step for size in same)
            shard = torch.empty(-(-number // shards), dtype=dtype, device="meta")
            flats.append(nn.Parameter(shard, requires_grad=needs))
    offload = given.get("cpu_offload")
    away = bool(offload is True or getattr(offload, "offload_params", False))
    return Laid("fsdp", shards, len(owners) + 1, _at_once(sizes), away), flats


def _wrap_children(module: Any, policy: Any, unit: Any) -> None:
    from torch.distributed.fsdp.wrap import _recursive_wrap

    _recursive_wrap(
        module=module,
        auto_wrap_policy=policy,
        wrapper_cls=unit,
        ignored_modules=set(),
        ignored_params=set(),
        only_wrap_children=True,
    )


def _shards(given: Mapping[str, Any]) -> int:
    """Return over how many ranks FSDP1 spreads a parameter."""
    import torch.distributed as dist

    mesh = given.get("device_mesh")
    if getattr(given.get("sharding_strategy"), "name", "") == "NO_SHARD":
        return 1
    return int(mesh.size(mesh.ndim - 1) if mesh is not None else dist.get_world_size())


def _at_once(sizes: list[int]) -> int:
    """Return the peak.

    The outermost unit, which is last, stays gathered while the others are gathered in sequence.
    """
    return (sizes[-1] if sizes else 0) + max(sizes[:-1], default=0)


def _width(policy: Any) -> int:
    dtype = getattr(policy, "param_dtype", None)
    return int(dtype.itemsize) if dtype is not None else _HALF

"""verl on processors: a platform of its own, registered where verl (0.9 and later) asks for one.

verl brings platforms for NVIDIA, AMD and Huawei, and takes NVIDIA's where it finds none of them (verl/plugin/platform).
VERL_PLATFORM selects this one by its name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from torch.distributed.fsdp import CPUOffloadPolicy
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

NAME = "verl_doctor_cpu"


class _Processors(types.ModuleType):
    """What verl uses of `torch.cuda`, on processors: all that `torch.cpu` has, and these.

    There is no memory of a device to count, to free or to limit, so that is zero and nothing.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def get_device_name(_device: Any = None) -> str:
        return "cpu"

    @staticmethod
    def mem_get_info(_device: Any = None) -> tuple[int, int]:
        """Free and all bytes of the machine's memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    @staticmethod
    def get_rng_state(_device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, _device: Any = None) -> None:
        torch.set_rng_state(state)


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


_processors = _Processors("verl_doctor_rehearsal.processors")
for _name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    setattr(_processors, _name, _zero)
for _name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_per_process_memory_fraction"):
    setattr(_processors, _name, _nothing)


@PlatformRegistry.register(platform=NAME)
class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """Each abstract method of verl's, answered for processors."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _processors

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        """No number: verl moves tensors `.to(current_device())`, where a number means a GPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """What processors are told to do is done when the call returns."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        """PyTorch has them for GPUs only."""

    def empty_cache(self) -> None:
        """The memory of processors has no cache of PyTorch's."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        """NCCL needs GPUs."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Ray sets this one for what it calls a GPU."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """There is no profiler of a device."""

    def profiler_stop(self) -> None:
        """As above."""

    def ray_resource_name(self) -> str:
        """The trainer counts the GPUs of each node before it starts; the rehearsal's Ray is told that it has some."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Weights go to vLLM through shared memory, as there are no handles of GPU memory to pass."""
        return False

    def cudart(self) -> None:
        return None


def _named_once(init: Any) -> Any:
    """Name gloo once: verl asks for `cpu:gloo,DEVICE:BACKEND`, which is gloo for cpu twice here, and PyTorch refuses that."""

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *rest: Any, **more: Any) -> Any:
        each = dict.fromkeys((backend or "").split(","))
        return init(",".join(each) or None, *rest, **more)

    return init_process_group


def _unpinned(policy: Any, pin_memory: bool = True) -> None:
    """Leave the memory of a policy that moves parameters off the device as it is: pinning serves copies to a GPU, and needs one.

    verl always gives the reference model such a policy (verl/workers/engine/fsdp).
    """
    object.__setattr__(policy, "pin_memory", False)


torch.distributed.init_process_group = _named_once(torch.distributed.init_process_group)
CPUOffloadPolicy.__init__ = _unpinned

"""verl on CPUs: a separate platform, registered where verl (0.9 and later) looks for one.

verl has platforms for NVIDIA, AMD and Huawei, and uses NVIDIA's if it finds none of them
(verl/plugin/platform). VERL_PLATFORM selects this one by its name.
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
    """What verl uses of `torch.cuda`, on CPUs: everything in `torch.cpu`, and these members.

    There is no device memory to count, free or limit, so counts are zero and operations do nothing.
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
        """Return the free and total bytes of the machine's memory."""
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
    """Implements each abstract method of verl's platform for CPUs."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _processors

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        """Return a device, not an index: verl moves tensors `.to(current_device())`; an index means a GPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is only one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: operations on the CPU are complete when the call returns."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: PyTorch has allocator settings for GPUs only."""

    def empty_cache(self) -> None:
        """Do nothing: PyTorch does not cache CPU memory."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        """Return gloo, because NCCL needs GPUs."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable that Ray sets for GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """Do nothing: there is no device profiler."""

    def profiler_stop(self) -> None:
        """Do nothing, as above."""

    def ray_resource_name(self) -> str:
        """Return GPU.

        The trainer counts the GPUs of each node before it starts, and the rehearsal's Ray is configured to
        have some.
        """
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """Return False: weights go to vLLM through shared memory, as there are no GPU memory handles."""
        return False

    def cudart(self) -> None:
        return None


def _named_once(init: Any) -> Any:
    """Name gloo once.

    The backend that verl requests, `cpu:gloo,DEVICE:BACKEND`, is gloo for cpu twice here, and PyTorch rejects
    that.
    """

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *rest: Any, **more: Any) -> Any:
        each = dict.fromkeys((backend or "").split(","))
        return init(",".join(each) or None, *rest, **more)

    return init_process_group


def _unpinned(policy: Any, pin_memory: bool = True) -> None:
    """Leave the memory of an offload policy unpinned: pinning speeds up copies to a GPU, and needs one.

    verl always gives the reference model such a policy (verl/workers/engine/fsdp).
    """
    object.__setattr__(policy, "pin_memory", False)


torch.distributed.init_process_group = _named_once(torch.distributed.init_process_group)
CPUOffloadPolicy.__init__ = _unpinned

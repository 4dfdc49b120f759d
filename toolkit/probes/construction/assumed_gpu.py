"""A GPU for vLLM on a machine without one, such as a login node.

There, the compiled modules of a vLLM for CUDA cannot be loaded, because they need the driver's library, and
vLLM detects no platform, so it refuses every setting. An empty library with the driver's name lets them load,
since nothing calls the driver. vLLM finds the platform by its own plugin mechanism
(https://docs.vllm.ai/en/latest/design/plugin_system/).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

_DRIVER = "libcuda.so.1"
_NAME = "assumed_gpu"
_PLATFORMS = "vllm.platform_plugins"
_CAPABILITY, _MEMORY = (9, 0), 80 * 1024**3  # an H100
_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine in elf.h


def assume(private: str) -> None:
    """Add the platform, and the driver's library where there is none."""
    site = Path(private, "site")
    metadata = site / "verl_doctor_gpu-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: verl-doctor-gpu\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{_PLATFORMS}]\n{_NAME} = {__name__}:platform\n")
    sys.path.append(str(site))
    if "VLLM_PLUGINS" in os.environ:  # the list of those that are loaded
        os.environ["VLLM_PLUGINS"] += f",{_NAME}"
    if not _has_driver() and os.uname().machine in _MACHINES:
        path = site / _DRIVER
        path.write_bytes(_empty_library(_DRIVER, _MACHINES[os.uname().machine]))
        ctypes.CDLL(str(path))
        sys.setdlopenflags(os.RTLD_LAZY)  # its functions are looked up only when they are called


def platform() -> str | None:
    """Return the name of the platform's class, None if there is a platform or torch is not for CUDA."""
    from importlib.metadata import entry_points

    import torch
    from vllm.platforms import builtin_platform_plugins

    if torch.version.cuda is None:
        return None
    others = [entry for entry in entry_points(group=_PLATFORMS) if entry.module != __name__]
    for detect in (*builtin_platform_plugins.values(), *(partial(_of_plug_in, entry) for entry in others)):
        with contextlib.suppress(Exception):
            if detect() is not None:
                return None
    return f"{__name__}.AssumedGpu"


def _of_plug_in(entry: Any) -> Any:
    return entry.load()()


def __getattr__(name: str) -> Any:
    """Create the class when vLLM looks it up: its base is vLLM's."""
    if name != "AssumedGpu":
        raise AttributeError(name)
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    def constant(value: Any) -> Any:
        return classmethod(lambda _cls, *_args, **_kwargs: value)

    methods = {
        "get_device_capability": constant(DeviceCapability(*_CAPABILITY)),
        "get_device_name": constant("NVIDIA H100 80GB HBM3"),
        "get_device_total_memory": constant(_MEMORY),
        "is_fully_connected": constant(True),
    }
    return type(name, (NonNvmlCudaPlatform,), methods)


def _has_driver() -> bool:
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    return True


def _empty_library(name: str, machine: int) -> bytes:
    """Return a shared object that exports nothing.

    It has a header, three program headers, and the tables that the loader reads (elf(5)).
    """
    strings = b"\0" + name.encode() + b"\0"
    symbols, hashes = bytes(24), struct.pack("<4I", 1, 1, 0, 0)  # the null symbol; one bucket, one chain
    at = 64 + 3 * 56
    places = {
        6: at,
        4: at + len(symbols),
        5: at + len(symbols) + len(hashes),
    }  # DT_SYMTAB, DT_HASH, DT_STRTAB
    padding = bytes(-(places[5] + len(strings)) % 16)
    dynamic_at = places[5] + len(strings) + len(padding)
    entries = {14: 1, **places, 10: len(strings), 11: 24, 0: 0}  # DT_SONAME, DT_STRSZ, DT_SYMENT, DT_NULL
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries.items())
    size = dynamic_at + len(dynamic)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)  # ET_DYN
    load = struct.pack(
        "<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 65536
    )  # PT_LOAD, readable and writable; the largest page
    tables = struct.pack("<IIQQQQQQ", 2, 6, *[dynamic_at] * 3, *[len(dynamic)] * 2, 8)  # PT_DYNAMIC
    stack = struct.pack(
        "<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16
    )  # PT_GNU_STACK: none that is executable, as glibc 2.41 demands
    return header + load + tables + stack + symbols + hashes + strings + padding + dynamic

"""The GPU that vLLM finds on a machine without one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What vLLM does to find its platform, from 0.7 on: its own functions and those of plug-ins, of which one may return a name.
_PLATFORMS = """
from importlib.metadata import entry_points
def _cuda(): {cuda}
def _broken(): raise RuntimeError("no such library")
builtin_platform_plugins = {{"tpu": _broken, "cuda": _cuda}}
def detected():
    own = [detect() for detect in builtin_platform_plugins.values() if detect is not _broken]
    plugins = [entry.load()() for entry in entry_points(group="vllm.platform_plugins")]
    return [name for name in (*plugins, *own) if name]
"""
_VLLM = {
    "vllm/__init__.py": "",
    "vllm/platforms/interface.py": "from collections import namedtuple\nDeviceCapability = namedtuple('C', 'major minor')\n",
    "vllm/platforms/cuda.py": "class NonNvmlCudaPlatform:\n    device_type = 'cuda'\n    def log_warnings(cls): pass\n",
}
_PROGRAM = """
import importlib, sys
sys.path.insert(0, {tree!r})
from verl_doctor.toolkit.probes.construction import assumed_gpu
assumed_gpu.assume({private!r})
from vllm.platforms import detected
for name in detected():
    module, _, attribute = name.rpartition(".")
    platform = getattr(importlib.import_module(module), attribute)()
    print(attribute, platform.device_type, *platform.get_device_capability(0), platform.is_fully_connected([0, 1]))
"""


@pytest.mark.parametrize(
    ("cuda", "printed"),
    [("return None", "AssumedGpu cuda 9 0 True\n"), ("return 'vllm.platforms.own.Found'", "Found own 0 0 False\n")],
)  # fmt: skip
def test_platform_where_vllm_detects_none(tmp_path: Path, cuda: str, printed: str) -> None:
    own = "class Found:\n    device_type = 'own'\n    def get_device_capability(self, _):\n        return 0, 0\n"
    own += "    def is_fully_connected(self, _):\n        return False\n"
    files = {
        **_VLLM,
        "vllm/platforms/own.py": own,
        "vllm/platforms/__init__.py": _PLATFORMS.format(cuda=cuda),
    }
    (tmp_path / "vllm" / "platforms").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert _run(tmp_path, _PROGRAM) == printed


def test_library_of_the_driver_can_be_loaded(tmp_path: Path) -> None:
    """Where the machine has a driver, its own library is the one that is loaded."""
    program = (
        _PROGRAM.partition("from vllm")[0]
        + "import ctypes\nctypes.CDLL('libcuda.so.1')\nprint(assumed_gpu._has_driver())"
    )
    assert _run(tmp_path, program) == "True\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the library is written for this machine")
def test_empty_library(tmp_path: Path) -> None:
    from verl_doctor.toolkit.probes.construction.assumed_gpu import _empty_library

    path = tmp_path / "library"
    path.write_bytes(_empty_library("libnothing.so.7", 62))
    library = ctypes.CDLL(str(path))
    with pytest.raises(AttributeError, match="undefined symbol: cuInit"):
        _ = library.cuInit
    assert ctypes.CDLL("libnothing.so.7")  # found by the name that it carries


def _run(tmp_path: Path, program: str) -> str:
    private = tmp_path / "private"
    private.mkdir()
    text = program.format(tree=str(tmp_path), private=str(private))
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

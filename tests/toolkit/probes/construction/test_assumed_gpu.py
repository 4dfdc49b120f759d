"""The GPU that vLLM finds on a machine without one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

# What vLLM does to find its platform, from 0.7 on: its own functions and those of plugins, of which one may return a name.
_PLATFORMS = """
import os
from importlib.metadata import entry_points
def _cuda(): {cuda}
def _broken(): raise RuntimeError("no such library")
builtin_platform_plugins = {{"tpu": _broken, "cuda": _cuda}}
def detected():
    own = [detect() for detect in builtin_platform_plugins.values() if detect is not _broken]
    allowed = os.environ.get("VLLM_PLUGINS")
    plugins = [entry for entry in entry_points(group="vllm.platform_plugins") if allowed is None or entry.name in allowed.split(",")]
    names = []
    for entry in plugins:
        try: names += [name] if (name := entry.load()()) else []
        except Exception: pass
    if len(names) > 1:
        raise RuntimeError("Only one platform plugin can be activated")
    return [name for name in (*names, *own) if name]
"""
_VLLM = {
    "torch/__init__.py": "from torch import version\n",
    "torch/version.py": "cuda = '13.0'\n",
    "vllm/__init__.py": "",
    "vllm/platforms/interface.py": "from collections import namedtuple\nDeviceCapability = namedtuple('C', 'major minor')\n",
    "vllm/platforms/cuda.py": "class NonNvmlCudaPlatform:\n    device_type = 'cuda'\n    def log_warnings(cls): pass\n",
}
_OWN = """
class Found:
    device_type = "own"
    def get_device_capability(self, _): return 0, 0
    def is_fully_connected(self, _): return False
"""
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cuda", "printed"),
    [("return None", "AssumedGpu cuda 9 0 True\n"), ("return 'vllm.platforms.own.Found'", "Found own 0 0 False\n")],
)  # fmt: skip
def test_platform_is_assumed_if_vllm_detects_none(tmp_path: Path, cuda: str, printed: str) -> None:
    files = {
        **_VLLM,
        "vllm/platforms/own.py": _OWN,
        "vllm/platforms/__init__.py": _PLATFORMS.format(cuda=cuda),
    }
    assert _run(tmp_path, _PROGRAM, files) == printed


_NONE = {**_VLLM, "vllm/platforms/__init__.py": _PLATFORMS.format(cuda="return None")}
_POINT = "[vllm.platform_plugins]\nnpu = npu:platform\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "printed"),
    [
        ({"npu.py": "def platform(): return 'npu.Npu'\nfrom vllm.platforms.own import Found as Npu\n"}, "Npu own 0 0 False\n"),
        ({"npu.py": "def platform(): return None\n"}, "AssumedGpu cuda 9 0 True\n"),
        ({"npu.py": "import nothing_like_this\ndef platform(): pass\n"}, "AssumedGpu cuda 9 0 True\n"),
    ],
    ids=["active", "inactive", "broken"],
)  # fmt: skip
def test_platform_of_another_plugin_is_kept(tmp_path: Path, files: dict[str, str], printed: str) -> None:
    """vLLM refuses two that are active: Ascend's is wherever it is installed."""
    metadata = {
        "npu-1.dist-info/METADATA": "Name: npu\nVersion: 1\n",
        "npu-1.dist-info/entry_points.txt": _POINT,
    }
    assert _run(tmp_path, _PROGRAM, {**_NONE, "vllm/platforms/own.py": _OWN, **metadata, **files}) == printed


@pytest.mark.slow
def test_platform_is_added_to_plugins_named_by_the_job(tmp_path: Path) -> None:
    assert _run(tmp_path, _PROGRAM, _NONE, VLLM_PLUGINS="mine") == "AssumedGpu cuda 9 0 True\n"


def test_platform_is_not_assumed_for_torch_on_other_hardware(tmp_path: Path) -> None:
    assert _run(tmp_path, _PROGRAM, {**_NONE, "torch/version.py": "cuda = None\n"}) == ""


def test_driver_library_can_be_loaded(tmp_path: Path) -> None:
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
    stack = next(line for line in Path("/proc/self/maps").read_text().splitlines() if "[stack]" in line)
    assert "x" not in stack.split()[1]  # glibc 2.41 refuses a library that would make it executable


def _run(
    tmp_path: Path, program: str, files: Mapping[str, str] = MappingProxyType({}), **environ: str
) -> str:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    private = tmp_path / "private"
    private.mkdir()
    text = program.format(tree=str(tmp_path), private=str(private))
    ended = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

"""One kernel, compiled and run: the child's text with a miniature of torch and triton, and children that fail."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.elf_files import place
from support.trying import LIMITS

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.kernels import triton_kernel as kernels_triton_kernel
from verl_doctor.toolkit.collectors.kernels.triton_kernel import TritonKernel, triton_kernel
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

TORCH = """
class Numbers(list):
    def __rmul__(self, factor): return Numbers(factor * number for number in self)
    def __eq__(self, other): return Numbers(a == b for a, b in zip(self, other))
    def all(self): return Said(all(list(self)))
class Said:
    def __init__(self, value): self.value = value
    def item(self): return self.value
class cuda:
    get_device_name = staticmethod(lambda index: "NVIDIA H200")
    synchronize = staticmethod(lambda: None)
float32 = None
def arange(size, device, dtype): return Numbers(range(size))
def empty_like(other): return Numbers([0] * len(other))
"""
# Its kernels are run by Python: `tl` works on whole lists, which also represent pointers.
TRITON = """
import os
from triton import language
class jit:
    def __init__(self, function): self.function = function
    def __getitem__(self, grid):
        assert os.environ["TRITON_CACHE_DIR"].startswith(os.getcwd())
        return lambda *arguments: self.function(*map(language.Pointer, arguments))
"""
LANGUAGE = """
class Pointer:
    def __init__(self, numbers): self.numbers = numbers
    def __add__(self, at): return self
class Loaded(list):
    def __add__(self, other): return Loaded(a + b for a, b in zip(self, other))
arange = range
def load(pointer): return Loaded(pointer.numbers)
def store(pointer, values): pointer.numbers[:] = values
"""


def look(root: Path, triton: str = TRITON, language: str = LANGUAGE) -> TritonKernel | Unknown:
    place(root, "/dev/nvidia0", b"")
    site = root / "site"
    for name, text in {"torch": TORCH, "triton": triton, "triton/language": language}.items():
        place(site, f"{name}/__init__.py", text.encode())
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    python = replace(PYTHON, executable=sys.executable, sys_path=(str(site),))
    machine = Machine(environ=environ, root=root)
    return triton_kernel.collect(machine, python, Variables(environ), JobVariables(environ), Absent(""))


def test_working_kernel_is_reported(tmp_path: Path) -> None:
    seen = look(tmp_path)
    assert isinstance(seen, TritonKernel)
    assert (seen.works, seen.device, seen.error) == (True, "NVIDIA H200", "")
    assert list(seen.seconds) == ["start", "import torch", "import triton", "compile", "run"]


def test_wrong_sums(tmp_path: Path) -> None:
    seen = look(tmp_path, language=LANGUAGE.replace("a + b for", "a - b for"))
    assert isinstance(seen, TritonKernel)
    assert (seen.works, seen.step) == (False, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "step", "message"),
    [
        ("raise ImportError('libtriton.so')", "import triton", "ImportError: libtriton.so"),
        (TRITON.replace("assert ", "assert not "), "compile", "AssertionError"),
        (TRITON.replace("assert ", "os.kill(os.getpid(), 11)#"), "compile", "ended by signal 11"),
        (TRITON.replace("assert ", "import time; time.sleep(600)#"), "compile", "did not end within"),
    ],
    ids=["import", "raises", "crashes", "hangs"],
)
def test_failing_step_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, step: str, message: str
) -> None:
    for limit in LIMITS if "sleep" in broken else LIMITS[1:]:
        monkeypatch.setattr(kernels_triton_kernel, "_LIMIT", limit)
        seen = look(tmp_path, broken)
        assert isinstance(seen, TritonKernel)
        if seen.step == step:
            break
    assert seen.step == step
    assert message in seen.error


def test_kernel_is_not_tried_without_torch(tmp_path: Path) -> None:
    place(tmp_path, "/dev/nvidia0", b"")
    machine = Machine(environ={}, root=tmp_path)
    python = replace(PYTHON, sys_path=())
    seen = triton_kernel.collect(machine, python, Variables({}), JobVariables({}), Absent(""))
    assert seen == Absent("torch is not installed")

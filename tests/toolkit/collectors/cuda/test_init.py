"""Results of the driver's library: real children, and libraries built here in its place."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.compiled import build
from support.elf_files import place
from support.trying import LIMITS

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.checks.shared.libcuda import machine as lying
from verl_doctor.toolkit.collectors.cuda import init
from verl_doctor.toolkit.collectors.cuda.init import CudaAnswer, CudaInit, cuda_init
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, Library
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

NAME = "libcuda.so.1"
NOT_LOOKED = Unknown("not looked")
SOURCE = """
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuInit(unsigned flags) { HERE }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_IN_TEST"; return 0; }
"""


def library(folder: Path, here: str) -> Path:
    """A driver library with this cuInit."""
    return build(folder, NAME, SOURCE.replace("HERE", here), f"-Wl,-soname,{NAME}")


def initialised(
    root: Path, folder: Path | None, libcuda: LibCuda | Unknown = NOT_LOOKED, **environ: str
) -> CudaInit:
    place(root, "/dev/nvidia0", b"")
    environ = {"PATH": os.environ["PATH"], **environ}
    if folder:
        environ["LD_LIBRARY_PATH"] = str(folder)
    python = replace(PYTHON, executable=sys.executable)
    found = cuda_init.collect(
        Machine(environ=environ, root=root), python, Variables(environ), JobVariables(environ), libcuda
    )
    assert isinstance(found, CudaInit), found
    return found


def test_cuda_init_succeeds(tmp_path: Path) -> None:
    file = library(tmp_path / "a", "return 0;")
    found = initialised(tmp_path, file.parent)
    assert found == CudaInit(CudaAnswer(str(file), 0, cuda=13000, devices=2))
    assert found.as_job.works


def test_error_code_and_name_are_reported(tmp_path: Path) -> None:
    answer = initialised(tmp_path, library(tmp_path / "a", "return 802;").parent).as_job
    assert (answer.code, answer.name, answer.works) == (802, "CUDA_ERROR_IN_TEST", False)
    assert ("/dev/nvidiactl", "No such file or directory") in answer.refused


@pytest.mark.slow
def test_own_driver_library_is_queried_outside_the_search_path(tmp_path: Path) -> None:
    own = library(tmp_path / "own", "return 0;")
    found = initialised(
        tmp_path, library(tmp_path / "compat", "return 803;").parent, lying(Library(str(own), str(own)))
    )
    assert found.as_job.code == 803
    assert found.own_file
    assert (found.own_file.file, found.own_file.works) == (str(own), True)


@pytest.mark.slow
def test_same_library_is_not_queried_twice(tmp_path: Path) -> None:
    file = library(tmp_path / "a", "return 999;")
    assert initialised(tmp_path, file.parent, lying(Library(str(file), str(file)))).own_file is None


@pytest.mark.slow
def test_devices_are_counted_without_cuda_visible_devices(tmp_path: Path) -> None:
    here = 'extern char *getenv(const char *); return getenv("CUDA_VISIBLE_DEVICES") ? 100 : 0;'
    found = initialised(tmp_path, library(tmp_path / "a", here).parent, CUDA_VISIBLE_DEVICES="")
    assert (found.as_job.code, found.visible) == (100, "")
    assert found.all_devices
    assert found.all_devices.works


@pytest.mark.slow
@pytest.mark.parametrize(
    ("here", "message", "hangs"),
    [
        ("for (;;);", "did not end within", True),
        ("__builtin_trap();", "ended by signal", False),
    ],
    ids=["hangs", "crashes"],
)
def test_hanging_library_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, message: str, hangs: bool
) -> None:
    file = library(tmp_path / "a", here)
    for limit in LIMITS if hangs else LIMITS[1:]:
        monkeypatch.setattr(init, "_LIMIT", limit)
        found = initialised(tmp_path, file.parent, CUDA_VISIBLE_DEVICES="0")
        answer = found.as_job
        if answer.cuda:
            break
    assert (answer.file, answer.code, answer.cuda, answer.hangs) == (str(file), None, 13000, hangs)
    assert (found.all_devices is None) == hangs
    assert message in answer.error


def test_missing_library_is_reported(tmp_path: Path) -> None:
    answer = initialised(tmp_path, None).as_job
    assert answer.code is None
    assert "libcuda.so.1: cannot open shared object file" in answer.error


@pytest.mark.slow
def test_library_without_driver_functions_is_reported(tmp_path: Path) -> None:
    found = initialised(tmp_path, build(tmp_path / "a", NAME, "int x;").parent).as_job
    assert found.code is None
    assert "cuDriverGetVersion" in found.error


def test_nothing_is_queried_without_a_gpu(tmp_path: Path) -> None:
    machine = Machine(environ={}, root=tmp_path)
    found = cuda_init.collect(machine, PYTHON, Variables({}), JobVariables({}), NOT_LOOKED)
    assert isinstance(found, Absent)


def test_missing_python_is_unknown(tmp_path: Path) -> None:
    place(tmp_path, "/dev/nvidia0", b"")
    python = replace(PYTHON, executable=str(tmp_path / "gone"))
    found = cuda_init.collect(
        Machine(environ={}, root=tmp_path), python, Variables({}), JobVariables({}), NOT_LOOKED
    )
    assert isinstance(found, Unknown)
    assert "cannot be started" in found.reason

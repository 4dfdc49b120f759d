"""Which libcuda would be loaded, on small recorded machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.elf_files import AARCH64, LOADER, cache, elf, place

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, libcuda
from verl_doctor.toolkit.collectors.gpu.nvidia_driver import driver_version
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

DRIVER = "580.159.04"
NVIDIA = "/usr/local/nvidia/lib64"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
COMPAT = "/usr/local/cuda-13.0/compat"
STUBS = "/usr/local/cuda/lib64/stubs"
NAME = "libcuda.so.1"
REAL = elf(soname=NAME, needed=["libc.so.6"], imports=["ioctl", "dlopen"], exports=["cuInit"])
STUB = elf(soname=NAME, exports=["cuInit"])
KERNEL = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (me@host)  \nGCC version:  gcc version 15.3.0 (GCC) \n"


def driver_in(root: Path, folder: str, version: str = DRIVER) -> None:
    """Put a driver's library into a folder, as its installer does."""
    place(root, f"{folder}/libcuda.so.{version}", REAL)
    place(root, f"{folder}/{NAME}", f"libcuda.so.{version}")
    place(root, f"{folder}/libcuda.so", NAME)


def cached(root: Path, *folders: str) -> None:
    """Write a cache that leads to these folders."""
    place(root, "/etc/ld.so.cache", cache([(NAME, f"{folder}/{NAME}") for folder in folders]))


def gpu_node(root: Path) -> None:
    """The device and the kernel's version."""
    place(root, "/dev/nvidia0", b"")
    place(root, "/proc/driver/nvidia/version", KERNEL.encode())


def look(
    root: Path, program: bytes = elf(interpreter=LOADER), job: JobVariables | None = None, **environ: str
) -> LibCuda | Unknown:
    python = replace(PYTHON, executable="/env/bin/python", prefix="/env")
    if not (root / "env/bin/python").exists():
        place(root, python.executable, program)
    machine = Machine(environ=environ, cwd=Path("/job"), root=root)
    variables = Variables(environ)
    return libcuda.collect(machine, python, variables, job or JobVariables(environ))


def found(root: Path, **environ: str) -> LibCuda:
    seen = look(root, **environ)
    assert isinstance(seen, LibCuda), seen
    return seen


def loaded(root: Path, **environ: str) -> tuple[str, str] | None:
    first = found(root, **environ).loaded
    return (first.path, first.how) if first else None


def test_compat_library_next_to_the_device_plugin_folder_is_listed(tmp_path: Path) -> None:
    """As on a real H200 container: no path leads to compat, so only its location is reported."""
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    driver_in(tmp_path, COMPAT, "580.95.05")
    place(tmp_path, "/usr/local/cuda", "cuda-13.0")
    cached(tmp_path, NVIDIA)
    seen = found(tmp_path, LD_LIBRARY_PATH=f"{NVIDIA}:/usr/local/nvidia/lib")
    assert seen.driver == DRIVER
    assert seen.loaded
    assert (seen.loaded.real, seen.loaded.how) == (f"{NVIDIA}/libcuda.so.{DRIVER}", "LD_LIBRARY_PATH")
    assert (seen.loaded.version, seen.loaded.stub, seen.loaded.compat) == (DRIVER, False, False)
    assert [(library.path, library.version, library.compat, library.how) for library in seen.elsewhere] == [
        (f"/usr/local/cuda/compat/{NAME}", "580.95.05", True, "")
    ]
    assert seen.drivers_own == seen.loaded


def test_compat_library_comes_first(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, SYSTEM)
    driver_in(tmp_path, COMPAT, "580.95.05")
    place(tmp_path, f"{SYSTEM}/libc.so.6", REAL)
    seen = found(tmp_path, LD_LIBRARY_PATH=COMPAT)
    assert seen.loaded
    assert (seen.loaded.version, seen.loaded.compat) == ("580.95.05", True)
    assert seen.drivers_own
    assert (seen.drivers_own.folder, seen.drivers_own.among_others) == (SYSTEM, True)


def test_stub_before_the_driver_is_found(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    cached(tmp_path, NVIDIA)
    place(tmp_path, f"{STUBS}/libcuda.so", STUB)
    assert loaded(tmp_path, LD_LIBRARY_PATH=STUBS) == (f"{NVIDIA}/{NAME}", "ld.so.cache")
    place(tmp_path, f"{STUBS}/{NAME}", "libcuda.so")
    seen = found(tmp_path, LD_LIBRARY_PATH=STUBS)
    assert seen.loaded
    assert (seen.loaded.path, seen.loaded.stub) == (f"{STUBS}/{NAME}", True)
    assert seen.drivers_own
    assert seen.drivers_own.folder == NVIDIA


def test_stub_is_recognised_by_its_symbols(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    place(tmp_path, f"{SYSTEM}/{NAME}", STUB)
    seen = found(tmp_path)
    assert seen.loaded
    assert seen.loaded.stub
    assert seen.drivers_own is None


def test_folder_outside_the_search_path_is_not_loaded(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    seen = found(tmp_path)
    assert seen.loaded is None
    assert seen.drivers_own
    assert seen.drivers_own.path == f"{NVIDIA}/{NAME}"


def test_driver_library_is_located_by_its_mount(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    place(tmp_path, f"/odd/libcuda.so.{DRIVER}", REAL)
    mounts = (
        f"36 35 98:0 / / rw - ext4 /dev/a rw\n37 36 98:0 /x /odd/libcuda.so.{DRIVER} ro - ext4 /dev/a rw\n"
    )
    place(tmp_path, "/proc/self/mountinfo", mounts.encode())
    own = found(tmp_path).drivers_own
    assert own
    assert own.real == f"/odd/libcuda.so.{DRIVER}"


def test_wsl(tmp_path: Path) -> None:
    place(tmp_path, "/dev/dxg", b"")
    assert isinstance(look(tmp_path), Absent)
    place(tmp_path, "/usr/lib/wsl/lib/libcuda.so.1.1", REAL)
    place(tmp_path, f"/usr/lib/wsl/lib/{NAME}", "libcuda.so.1.1")
    seen = found(tmp_path)
    assert (seen.driver, seen.loaded) == ("", None)
    assert seen.drivers_own
    assert seen.drivers_own.folder == "/usr/lib/wsl/lib"


def test_rpath_of_the_environment_takes_precedence(tmp_path: Path) -> None:
    """The rpath of conda's Python leads to the environment's libraries, before everything else."""
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    place(tmp_path, f"/env/lib/{NAME}", STUB)
    seen = look(tmp_path, elf(interpreter=LOADER, rpath="$ORIGIN/../lib"), LD_LIBRARY_PATH=NVIDIA)
    assert isinstance(seen, LibCuda)
    assert seen.loaded
    assert (seen.loaded.path, seen.loaded.how, seen.loaded.stub) == (f"/env/lib/{NAME}", "RPATH", True)


@pytest.mark.parametrize(
    ("content", "trouble"),
    [("gone", "dangling link"), (elf(machine=AARCH64), "for another processor"), (REAL[:100], "damaged")],
)
def test_unloadable_libraries_are_skipped(tmp_path: Path, content: bytes | str, trouble: str) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    cached(tmp_path, NVIDIA)
    place(tmp_path, f"/a/{NAME}", content)
    seen = found(tmp_path, LD_LIBRARY_PATH="/a")
    assert seen.candidates[0].trouble == trouble
    assert (seen.loaded is None) == (trouble == "damaged")


@pytest.mark.slow
def test_version_is_read_from_the_file_content(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    place(
        tmp_path,
        f"{SYSTEM}/{NAME}",
        REAL + b"\0" * 9_000_000 + b"\x00535.183.01\x00 12.2.140\x00535.183.01\x00",
    )
    first = found(tmp_path).loaded
    assert first
    assert first.version == "535.183.01"
    place(tmp_path, f"/other/{NAME}", REAL + b"\x00535.183.01\x00\x00470.82\x00")
    first = found(tmp_path, LD_LIBRARY_PATH="/other").loaded
    assert first
    assert first.version == ""


def test_variables_set_in_a_launch_file_apply(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    place(tmp_path, f"/a/{NAME}", STUB)
    job = JobVariables({"LD_LIBRARY_PATH": "/a"}, {"LD_LIBRARY_PATH": ("run.sh", 2)})
    seen = look(tmp_path, job=job, LD_LIBRARY_PATH=NVIDIA)
    assert isinstance(seen, LibCuda)
    assert seen.loaded
    assert seen.loaded.folder == "/a"


def test_variables_unset_in_a_launch_file_are_removed(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    driver_in(tmp_path, NVIDIA)
    seen = look(tmp_path, job=JobVariables(), LD_LIBRARY_PATH=NVIDIA)
    assert isinstance(seen, LibCuda)
    assert seen.loaded is None


@pytest.mark.parametrize("there", [(), ("/proc/driver/nvidia/version",), ("/dev/nvidiactl",)])
def test_machines_without_a_gpu(tmp_path: Path, there: tuple[str, ...]) -> None:
    for path in there:
        place(tmp_path, path, KERNEL.encode())
    driver_in(tmp_path, SYSTEM)
    assert isinstance(look(tmp_path), Absent)


def test_musl_is_unknown(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    seen = look(tmp_path, elf(interpreter="/lib/ld-musl-x86_64.so.1"))
    assert isinstance(seen, Unknown)
    assert "musl" in seen.reason


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("/proc/driver/nvidia/version", KERNEL, DRIVER),
        ("/proc/driver/nvidia/version", KERNEL.replace(" Open", "").replace(DRIVER, "470.82"), "470.82"),
        ("/sys/module/nvidia/version", "535.183.01\n", "535.183.01"),
        ("/nothing", "", ""),
    ],
)
def test_kernel_driver_version(tmp_path: Path, path: str, text: str, version: str) -> None:
    place(tmp_path, path, text.encode())
    assert driver_version(Machine(environ={}, root=tmp_path)) == version

"""The toolkit that a kernel would be compiled with, on machines that are folders."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from verl_doctor.checks.shared.flashinfer_examples import H200
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.kernels.cuda_toolkit import CudaToolkit, cuda_toolkit
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output

SAID = {
    "--version": {
        "nvcc": "Cuda compilation tools, release 13.0, V13.0.88\n",
        "gcc": "gcc (Ubuntu 13.3.0-6ubuntu2~24.04.1) 13.3.0\nCopyright (C) 2023\n",
        "red-hat-gcc": "gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)\n",
        "clang": "Debian clang version 14.0.6 (x)\n",
    },
    "--list-gpu-arch": {"nvcc": "compute_75\ncompute_90\ncompute_120\n"},
}
HEADER = "#if __GNUC__ > 15\n\n#error -- unsupported GNU version!\n"
NO_FLASHINFER = Absent("FlashInfer is not installed in this environment")
GPU = Resources((Gpu("NVIDIA H200", 143_771, "9.0"),), 16.0, 1)
PATH = "/usr/bin:/usr/local/cuda/bin"


def program(root: Path, path: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    file.chmod(0o755)


def toolkit(root: Path, home: str = "/usr/local/cuda") -> None:
    program(root, f"{home}/bin/nvcc")
    for name, text in {
        "include/crt/host_config.h": HEADER,
        "lib64/libcudart.so": "",
        "lib64/stubs/libcuda.so": "",
    }.items():
        file = root / home.lstrip("/") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    toolkit(tmp_path)
    for name in ("gcc", "c++", "red-hat-gcc", "clang", "ninja"):
        program(tmp_path, f"/usr/bin/{name}")
    return tmp_path


def look(root: Path, flashinfer: FlashInfer | Unknown = NO_FLASHINFER, **variables: str) -> CudaToolkit:
    def answer(argv: Sequence[str], _env: Mapping[str, str], _timeout: float) -> Output:
        return Output(0, SAID[argv[1]].get(Path(argv[0]).name, ""), "", 0.0)

    found = cuda_toolkit.collect(
        Machine(environ={}, runner=answer, root=root),
        JobVariables({"PATH": PATH, **variables}),
        GPU,
        flashinfer,
    )
    assert isinstance(found, CudaToolkit)
    return found


def test_nvcc_on_path_names_the_toolkit(root: Path) -> None:
    found = look(root)
    assert (found.home, found.given_by, found.release) == ("/usr/local/cuda", "PATH", "13.0")
    assert found.targets == ("7.5", "9.0", "12.0")
    assert (found.unlinkable, found.ninja, found.compiler) == ((), "/usr/bin/ninja", "/usr/bin/gcc")
    assert (found.gcc, found.newest_gcc, found.cxx) == (13, 15, "/usr/bin/c++")


def test_cuda_home_variables_are_used_even_if_wrong(root: Path) -> None:
    toolkit(root, "/other")
    assert look(root, CUDA_PATH="/other").home == "/other"
    assert look(root, CUDA_HOME="/gone", CUDA_PATH="/other").nvcc == ""
    assert look(root, CUDA_HOME="", CUDA_PATH="/other").given_by == "CUDA_PATH"


@pytest.mark.parametrize("value", [":/usr/local/cuda", "/gone:/usr/local/cuda", "/usr/local/cuda:"])
def test_list_in_cuda_home_suggests_the_existing_toolkit(root: Path, value: str) -> None:
    found = look(root, CUDA_HOME=value, PATH="/usr/bin")
    assert (found.nvcc, found.candidate) == ("", "/usr/local/cuda")


def test_linked_nvcc_gives_an_incomplete_toolkit(root: Path) -> None:
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/nvcc").symlink_to(root / "usr/local/cuda/bin/nvcc")
    found = look(root, PATH="/usr/local/bin:/usr/bin")
    assert (found.home, found.unlinkable) == ("/usr/local", ("libcudart.so", "libcuda.so"))
    assert found.candidate == "/usr/local/cuda"


@pytest.mark.parametrize("folder", ["/usr/lib/x86_64-linux-gnu", "/else/lib"])
def test_libraries_may_be_found_elsewhere_by_the_linker(root: Path, folder: str) -> None:
    program(root, "/usr/bin/nvcc")
    assert look(root, PATH="/usr/bin").unlinkable == ("libcudart.so", "libcuda.so")
    program(root, f"{folder}/libcudart.so")
    assert look(root, PATH="/usr/bin", LIBRARY_PATH="/else/lib").unlinkable == ("libcuda.so",)


def test_default_toolkit_is_used_without_nvcc_on_path(root: Path, tmp_path: Path) -> None:
    assert (look(root, PATH="/usr/bin").home, look(root, PATH="/usr/bin").given_by) == ("/usr/local/cuda", "")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert look(empty) == CudaToolkit("", "", unlinkable=("libcudart.so", "libcuda.so"))


@pytest.mark.parametrize(
    ("value", "compiler", "gcc"),
    [
        ("red-hat-gcc", "/usr/bin/red-hat-gcc", 11),
        ("/usr/bin/gcc -m64", "/usr/bin/gcc", 13),
        ("clang", "/usr/bin/clang", 0),
        ("/gone/gcc", "", 0),
    ],
)
def test_cc_selects_the_host_compiler_of_nvcc(root: Path, value: str, compiler: str, gcc: int) -> None:
    found = look(root, CC=value)
    assert (found.compiler, found.compiler_given_by, found.gcc) == (compiler, "CC", gcc)


def test_cxx_selects_the_linking_compiler(root: Path) -> None:
    found = look(root, CXX="/gone/g++")
    assert (found.cxx, found.cxx_given_by) == ("", "CXX")


def test_file_without_execute_permission_is_not_a_compiler(root: Path) -> None:
    (root / "usr/local/cuda/bin/nvcc").chmod(0o644)
    assert (look(root).nvcc, look(root).on_path) == ("", "")


def test_toolkit_needs_gpus_and_known_variables() -> None:
    here, none = Machine(environ={}), Resources((), 1.0, 1)
    undetermined = JobVariables(undetermined=("CUDA_HOME",))
    assert isinstance(cuda_toolkit.collect(here, JobVariables(), none, NO_FLASHINFER), Absent)
    assert type(cuda_toolkit.collect(here, undetermined, GPU, NO_FLASHINFER)) is Unknown


def test_headers_missing_from_an_nvcc_only_toolkit_are_listed(root: Path) -> None:
    kernels = H200(headers=("cuda_runtime.h", "curand.h"))
    assert look(root, kernels).lacks == ()  # the folder of a wrapper proves nothing
    program(root, "/usr/local/cuda/include/cuda_runtime.h")
    assert look(root, kernels).lacks == ("curand.h",)
    assert look(root, kernels, FLASHINFER_EXTRA_CUDAFLAGS="-I/else").lacks == ()
    program(root, "/else/curand.h")
    assert look(root, kernels, CPATH="/else").lacks == ()


def test_unreadable_folder_on_path_is_skipped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's is, after `su`: pathlib raises there before Python 3.14."""
    real_stat = os.stat

    def stat(path: os.PathLike[str] | str, **options: bool) -> os.stat_result:
        if "/closed/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return real_stat(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    found = look(root, PATH=f"/closed/bin:{PATH}", CUDA_HOME="/closed/cuda")
    assert (found.on_path, found.nvcc) == ("/usr/local/cuda/bin/nvcc", "")

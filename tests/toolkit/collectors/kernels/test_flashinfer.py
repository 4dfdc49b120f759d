"""FlashInfer's packages and compiled kernels: in a folder, and in the real wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.environments import interpreter, site_packages

from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer, belongs, flashinfer
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

H200 = Gpu("NVIDIA H200", 143_771, "9.0")
REFUSES = "from ..version import __version__ as flashinfer_version\ndef _get_cubin_dir():\n    if has():\n        if other():\n            raise RuntimeError('another version')\n"
IGNORES = "from ..version import __version__ as flashinfer_version\ndef _get_cubin_dir():\n    try:\n        check()\n    except RuntimeError as error:\n        warn(error)\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = site_packages(tmp_path)
    for name, text in {
        "__init__.py": "",
        "_build_meta.py": '__version__ = "0.6.12"\n',
        "jit/env.py": REFUSES,
    }.items():
        path = site / "flashinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return site


def look(
    site: Path, *gpus: Gpu, wheels: dict[str, str] | None = None, **variables: str
) -> FlashInfer | Unknown:
    installed = {"flashinfer-python": "0.6.12", **(wheels or {})}
    found: FlashInfer | Unknown = flashinfer.collect(
        interpreter(site),
        Packages(tuple(Distribution(name, version, "") for name, version in installed.items())),
        Resources(gpus or (H200,), 1.0, 1),
        JobVariables(variables),
        Machine(environ={"HOME": str(site / "home")}),
    )
    return found


def built(site: Path, *gpus: Gpu, wheels: dict[str, str] | None = None, **variables: str) -> tuple[str, ...]:
    found = look(site, *gpus, wheels=wheels, **variables)
    assert isinstance(found, FlashInfer)
    return found.built


def kernel(folder: Path, name: str = "sampling") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / f"{name}.so").write_bytes(b"")


def test_new_environment_has_no_compiled_kernels(site: Path) -> None:
    found = look(site)
    assert isinstance(found, FlashInfer)
    assert (found.version, found.capability, found.built) == ("0.6.12", "9.0", ())
    assert found.cache == str(site / "home/.cache/flashinfer/0.6.12")


@pytest.mark.parametrize(
    ("architectures", "counts"),
    [("90a", True), ("90", True), ("100a", False), ("80_90a", False), ("", False)],
)
def test_kernels_compiled_earlier_for_the_same_gpus_count(
    site: Path, architectures: str, counts: bool
) -> None:
    kernel(site / "home/.cache/flashinfer/0.6.12" / architectures / "cached_ops")
    assert ("sampling" in built(site)) is counts


def test_cache_folder_follows_the_architecture_list(site: Path) -> None:
    kernel(site / "home/.cache/flashinfer/0.6.12/80_90a/cached_ops")
    assert built(site, FLASHINFER_CUDA_ARCH_LIST="8.0 9.0a") == ("sampling",)
    assert built(site, FLASHINFER_CUDA_ARCH_LIST="8.0") == ()


def test_older_releases_use_a_single_cache(site: Path) -> None:
    (site / "flashinfer/jit/env.py").write_text("def _get_workspace_dir_name():\n    pass\n")
    kernel(site / "home/.cache/flashinfer/90/cached_ops")
    assert built(site) == ("sampling",)
    assert built(site, TORCH_CUDA_ARCH_LIST="8.0;9.0+PTX") == ()


def test_prebuilt_library_of_an_old_release_counts(site: Path) -> None:
    (site / "flashinfer/flashinfer_kernels.abi3.so").write_bytes(b"")
    assert built(site) == ("sampling",)


def test_kernels_of_another_release_do_not_count(site: Path) -> None:
    kernel(site / "home/.cache/flashinfer/0.6.11/90a/cached_ops")
    assert built(site) == ()


def test_unfinished_kernel_does_not_count(site: Path) -> None:
    (site / "home/.cache/flashinfer/0.6.12/90a/cached_ops/sampling").mkdir(parents=True)
    assert built(site) == ()


def test_workspace_variable_moves_the_cache(site: Path, tmp_path: Path) -> None:
    kernel(tmp_path / "fast/.cache/flashinfer/0.6.12/90a/cached_ops")
    assert built(site, FLASHINFER_WORKSPACE_BASE=str(tmp_path / "fast")) == ("sampling",)


@pytest.mark.parametrize(
    ("version", "counts"), [("0.6.12+cu130", True), ("0.6.12", True), ("0.6.11+cu130", False)]
)
def test_kernel_wheel_counts_only_for_its_release(site: Path, version: str, counts: bool) -> None:
    kernel(site / "flashinfer_jit_cache/jit_cache")
    assert ("sampling" in built(site, wheels={"flashinfer-jit-cache": version})) is counts


@pytest.mark.parametrize(("provider", "counts"), [("sm90a", True), ("sm100a", False)])
def test_kernel_wheel_counts_only_for_its_architecture(site: Path, provider: str, counts: bool) -> None:
    kernel(site / "flashinfer_jit_cache/providers" / provider / "jit_cache")
    assert ("sampling" in built(site, wheels={"flashinfer-jit-cache": "0.6.12+cu130"})) is counts


def test_version_check_of_the_kernel_wheel_depends_on_the_release(site: Path) -> None:
    def refuses(**variables: str) -> bool:
        found = look(site, **variables)
        assert isinstance(found, FlashInfer)
        return found.refuses_others

    assert refuses()
    assert not refuses(FLASHINFER_DISABLE_VERSION_CHECK="1")
    (site / "flashinfer/jit/env.py").write_text(IGNORES)
    assert not refuses()


def test_missing_flashinfer_or_gpu_is_absent(site: Path, tmp_path: Path) -> None:
    nothing = Resources(None, 1.0, 1, "there is no nvidia-smi here")
    packages, machine = Packages(()), Machine(environ={})
    empty = interpreter(site_packages(tmp_path / "other"))
    assert isinstance(
        flashinfer.collect(empty, packages, Resources((H200,), 1.0, 1), JobVariables(), machine), Absent
    )
    assert isinstance(
        flashinfer.collect(interpreter(site), packages, nothing, JobVariables(), machine), Absent
    )


def test_different_gpus_leave_the_architecture_unknown(site: Path) -> None:
    assert type(look(site, H200, Gpu("NVIDIA B200", 1, "10.0"))) is Unknown
    assert type(look(site, Gpu("NVIDIA H200", 1))) is Unknown


def test_kernel_wheel_matches_exactly_one_release() -> None:
    assert belongs("0.6.1+cu130", "0.6.1")
    assert not belongs("0.6.12", "0.6.1")


def test_cuda_headers_included_by_the_sampler_are_listed(site: Path) -> None:
    sources = {
        "csrc/sampling.cu": '#include <flashinfer/math.cuh>\n#include "local.h"\n#include <vector>\n',
        "csrc/local.h": "#pragma once\n#include <cuda.h>\n#if NEW\n#include <cuda_fp4.h>\n#endif\n",
        "include/flashinfer/math.cuh": "#ifndef A_\n#define A_\n#include <curand_kernel.h>\n#include <cub/cub.cuh>\n#endif\n",
    }
    for name, text in sources.items():
        path = site / "flashinfer/data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = look(site)
    assert isinstance(found, FlashInfer)
    assert found.headers == ("cuda.h", "curand_kernel.h")


@pytest.mark.real
@pytest.mark.parametrize("release", ["0.5.3", "0.6.12"])
def test_real_wheel(wheel_tree: Callable[[str, str], Path], release: str, tmp_path: Path) -> None:
    """The cache lies where this release names it, and it refuses wheels of another one."""
    site = wheel_tree("flashinfer-python", release)
    found = flashinfer.collect(
        interpreter(site),
        Packages(()),
        Resources((H200,), 1.0, 1),
        JobVariables({"FLASHINFER_WORKSPACE_BASE": str(tmp_path)}),
        Machine(environ={}),
    )
    assert isinstance(found, FlashInfer)
    assert (found.version, found.built, found.refuses_others) == (release, (), True)
    assert {"cuda_runtime.h", "curand_kernel.h"} <= set(found.headers)
    assert "cuda_fp4.h" not in found.headers  # for CUDA 12.8 and later only

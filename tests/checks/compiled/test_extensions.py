"""Compiled packages that do not fit: the words, and the wheel that would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.environments import interpreter

from verl_doctor.checks.compiled.extension_lacks_library import extension_lacks_library
from verl_doctor.checks.compiled.extension_of_another_torch import extension_of_another_torch
from verl_doctor.checks.driver.driver_older_than_cuda import driver_older_than_cuda
from verl_doctor.checks.shared.extensions import FLASH, TORCH, flash_attention_wheel, lacking, without
from verl_doctor.toolkit.collectors.compiled.extensions import Extensions, MissingSymbol
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages.cuda_wheels import CudaWheels
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check

PYTHON = interpreter(version="3.12.3")
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
GONE = MissingSymbol("_ZN3c104goneEv", "c10::gone()")


def single_finding(
    extensions: Extensions, torch: Any = TORCH, check: Any = extension_of_another_torch, *more: Any
) -> Finding:
    (found,) = run_check(check, PYTHON, torch, extensions, *more).findings
    return found


def test_flash_attention_wheel_is_named_in_full() -> None:
    assert flash_attention_wheel("2.8.3", TORCH, PYTHON) == (
        "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    )
    old = TorchBuild("/env/torch", "2.5.1+cu121", cuda="12.1", cxx11_abi=False)
    assert "torch2.5cxx11abiFALSE-cp312" in flash_attention_wheel("2.7.4", old, PYTHON)
    assert flash_attention_wheel("2.7.4", replace(old, cuda=""), PYTHON) == ""
    assert flash_attention_wheel("2.7.4", replace(old, version="nightly"), PYTHON) == ""


def test_flash_attention_remedy_is_a_command() -> None:
    remedy = single_finding(lacking(GONE, version="2.8.3+cu12torch2.6cxx11abiFALSE")).remedy
    assert (
        "releases/download/v2.8.3/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
        in remedy
    )
    assert remedy.startswith("run pip install --no-deps")


def test_remedy_for_a_package_pinning_torch_names_the_pin() -> None:
    finding = single_finding(lacking(GONE, package="vllm", version="0.11.0", built_for_torch="2.9.1"))
    assert finding.message == (
        "vllm 0.11.0 cannot be loaded: built for torch 2.9.1, but torch 2.8.0+cu128 is installed"
    )
    assert finding.remedy.startswith(
        "pip install torch==2.9.1, or use the release of vllm that is built for torch 2.8.0"
    )


@pytest.mark.parametrize(
    ("missing", "there", "words"),
    [
        ("c10::Error::Error(std::string)", f"c10::Error::Error({STRING})", "the old ABI of the C++ library (std::string) is used, but torch 2.8.0+cu128 has the new one"),
        (f"c10::Error::Error({STRING})", "c10::Error::Error(std::string)", "the new ABI of the C++ library (std::string) is used, but torch 2.8.0+cu128 has the old one"),
        ("c10::name[abi:cxx11]() const", "c10::name() const", "the new ABI"),
    ],
)  # fmt: skip
def test_both_directions_of_an_abi_mismatch_are_named(missing: str, there: str, words: str) -> None:
    assert (
        words
        in single_finding(lacking(MissingSymbol("_ZN3c10", missing, (there,)), built_for_torch="")).message
    )


def test_same_function_with_other_arguments_is_not_an_abi_mismatch() -> None:
    symbol = MissingSymbol("_ZN3c10", "c10::f(std::string)", (f"c10::f({STRING}, bool)", "c10::f(int)"))
    finding = single_finding(lacking(symbol, built_for_torch=""))
    assert "ABI" not in finding.message
    assert "c10::f(std::string): torch has c10::f(" in finding.evidence.found


def test_package_not_needed_by_the_job_is_a_warning() -> None:
    packages = Packages(
        (
            Distribution(
                "vllm", "0.11.0", "/env/vllm.dist-info", requires=("xformers==0.0.32", "rare; extra == 'all'")
            ),
            Distribution("xformers", "0.0.32", "/env/xformers.dist-info"),
            Distribution("rare", "1.0", "/env/rare.dist-info"),
        )
    )
    for package, severity in {
        "vllm": "error",
        "xformers": "error",
        "rare": "warning",
        "flash-attn": "error",
    }.items():
        assert (
            single_finding(
                lacking(GONE, package=package), TORCH, extension_of_another_torch, packages
            ).severity
            == severity
        )


def test_files_of_one_package_share_a_finding() -> None:
    files = [
        replace(FLASH, path=f"/env/{n}.so", missing_symbols=(GONE,), symbols_missing=n) for n in (1, 3, 2)
    ]
    finding = single_finding(Extensions(tuple(files), 3))
    assert finding.location is not None
    assert finding.location.path == "/env/3.so"
    assert [place.path for place in finding.also] == ["/env/2.so", "/env/1.so"]


def test_remedy_without_torch_is_to_install_it() -> None:
    found = run_check(
        extension_of_another_torch, PYTHON, (TorchBuild, Absent("no torch")), lacking(GONE)
    ).findings
    assert found[0].remedy.startswith("install torch")


def test_system_libraries_are_named_by_package() -> None:
    found = single_finding(
        without("libibverbs.so.1", "libnuma.so.1", package="deep-ep"), TORCH, extension_lacks_library
    )
    assert found.remedy == "apt-get install libibverbs1 libnuma1"


def test_library_outside_the_search_path_is_shown() -> None:
    extensions = without("libcublas.so.12")
    (extension,) = extensions.extensions
    missing = tuple(
        replace(library, lies_in="/env/nvidia/cublas/lib/libcublas.so.12")
        for library in extension.missing_libraries
    )
    found = single_finding(
        Extensions((replace(extension, missing_libraries=missing),), 1), TORCH, extension_lacks_library
    )
    assert "the loader does not search it" in found.evidence.found


def test_every_package_built_for_a_newer_cuda_is_named() -> None:
    torch = TorchBuild("/env/torch", "2.11.0+cu130", cuda="13.0")
    extension = replace(FLASH, package="vllm", version="0.33.0", cuda_runtimes=("libcudart.so.13",))
    result = run_check(
        driver_older_than_cuda,
        Gpus(driver="570.86", cuda="12.8"),
        torch,
        CudaWheels(()),
        Extensions((extension,), 1),
    )
    (finding,) = result.findings
    assert (
        finding.message
        == "torch 2.11.0+cu130, vllm 0.33.0 need CUDA 13, but the driver supports only CUDA up to 12.8"
    )
    assert "580.65.06" in finding.remedy
    assert (
        run_check(
            driver_older_than_cuda, Gpus(driver="?", cuda=""), torch, CudaWheels(()), Extensions((), 0)
        ).findings
        == ()
    )


def test_package_of_another_engine_is_a_warning() -> None:
    sglang = Distribution("sglang", "0.5.5", "/env/sglang.dist-info", requires=("sgl-kernel==0.3.16",))
    vllm = Distribution("vllm", "0.11.0", "/env/vllm.dist-info")
    broken = lacking(GONE, package="sgl-kernel")
    assert single_finding(broken, TORCH, extension_of_another_torch, Packages((sglang,))).severity == "error"
    assert (
        single_finding(broken, TORCH, extension_of_another_torch, Packages((sglang, vllm))).severity
        == "warning"
    )


def test_one_cause_is_one_finding_and_packages_of_the_job_come_first() -> None:
    packages = Packages(
        (Distribution("vllm", "0.11.0", "/env/vllm.dist-info", requires=("torch==2.9.1", "torchvision")),)
    )
    files = [
        replace(FLASH, package=package, version="1.0", path=f"/env/{package}.so", missing_symbols=(GONE,), symbols_missing=n, built_for_torch="2.9.1")
        for n, package in enumerate(("apex", "torchvision", "vllm"), 1)
    ]  # fmt: skip
    finding = single_finding(Extensions(tuple(files), 3), TORCH, extension_of_another_torch, packages)
    assert finding.message.startswith(
        "vllm 1.0, torchvision 1.0, apex 1.0 cannot be loaded: built for torch 2.9.1"
    )
    assert finding.severity == "error"
    assert finding.remedy.startswith("pip install torch==2.9.1")


def test_long_functions_are_reported_by_name() -> None:
    words = f"torch::autograd::wrap({', '.join(['std::vector<at::Tensor>'] * 20)}"
    symbol = MissingSymbol("_ZN5torch", f"{words})", (f"{words}, bool)",))
    found = single_finding(lacking(symbol, built_for_torch="")).evidence.found
    assert "torch::autograd::wrap(...): torch has one with other arguments" in found

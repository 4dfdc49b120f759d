"""NVIDIA's wheels: their CUDA release, and files written by several."""

from __future__ import annotations

from pathlib import Path

from support.environments import install, look_at, site_packages

from verl_doctor.toolkit.collectors.packages.cuda_wheels import (
    CudaWheel,
    CudaWheels,
    SharedFiles,
    cuda_wheels,
)


def look(site: Path) -> CudaWheels:
    found = cuda_wheels.collect(look_at(site))
    assert isinstance(found, CudaWheels)
    return found


def test_cuda_version_is_read_from_wheel_names(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    for name, version in {
        "nvidia-cublas": "13.1.0.3",
        "nvidia-cuda-runtime": "13.0.96",
        "nvidia-cudnn-cu13": "9.19.0.56",
        "nvidia-cufft-cu12": "11.3.3.83",
        "nvidia-ml-py": "13.610.43",
        "nvidia-cutlass-dsl": "4.3.0",
        "torch": "2.11.0",
    }.items():
        install(site, name, version)
    assert {wheel.name: wheel.cuda for wheel in look(site).wheels} == {
        "nvidia-cublas": 13,
        "nvidia-cuda-runtime": 13,
        "nvidia-cudnn-cu13": 13,
        "nvidia-cufft-cu12": 12,
    }


def test_wheels_that_write_the_same_file_are_found(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    library = "nvidia/nccl/lib/libnccl.so.2"
    for suffix in ("cu12", "cu13"):
        install(site, f"nvidia-nccl-{suffix}", "2.28.9", files={library: b"", "nvidia/__init__.py": b""})
        install(site, f"nvidia-cublas-{suffix}", "1.0", files={f"nvidia/{suffix}/lib/libcublas.so": b""})
    found = look(site)
    assert found.shared == (SharedFiles(("nvidia-nccl-cu12", "nvidia-nccl-cu13"), (f"{site}/{library}",)),)
    assert CudaWheel("nvidia-nccl-cu12", "2.28.9", 12) in found.wheels

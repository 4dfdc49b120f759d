"""Package of each compiled file: by RECORD, in the sources of an editable install, or without either."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.environments import install, look_at, site_packages

from verl_doctor.toolkit.collectors.compiled.elf_memory import ElfMemory
from verl_doctor.toolkit.collectors.compiled.files import compiled_files, stray_modules


def found(site: Path) -> dict[str, str]:
    memory = ElfMemory(site / "memory")
    files = compiled_files(look_at(site).distributions, memory)
    return {os.path.relpath(path, site): distribution.name for path, distribution in files}


def test_files_listed_in_record_are_found_if_they_exist(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    files = {
        "vllm/_C.abi3.so": b"",
        "nvidia/nccl/lib/libnccl.so.2": b"",
        "vllm/gone.so": b"",
        "vllm/a.so.py": b"",
    }
    install(site, "vllm", "1.0", files=files)
    (site / "vllm" / "gone.so").unlink()
    (site / "vllm" / "stray.so").touch()
    assert found(site) == {"vllm/_C.abi3.so": "vllm", "nvidia/nccl/lib/libnccl.so.2": "vllm"}


def test_editable_install_leads_to_its_sources(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    folder = install(site, "flash-attn", "1.0", files={"__editable__.flash_attn.pth": b""})
    sources = tmp_path / "with space" / "flash-attention"
    (sources / "flash_attn").mkdir(parents=True)
    (sources / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so").touch()
    (sources / "flash_attn" / "_C.so").touch()
    url = sources.as_uri()
    (folder / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    assert {Path(path).name for path in found(site)} == {
        "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so",
        "_C.so",
    }


def test_packages_without_record_are_searched(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    metadata = site / "apex-0.1.egg-info"
    metadata.mkdir()
    (metadata / "PKG-INFO").write_text("Name: apex\nVersion: 0.1\n")
    (metadata / "top_level.txt").write_text("apex\namp_C\n../../etc\n")
    (site / "apex").mkdir()
    for name in ("amp_C.cpython-311-x86_64-linux-gnu.so", "apex/fused.so", "other.so"):
        (site / name).touch()
    assert found(site) == {"amp_C.cpython-311-x86_64-linux-gnu.so": "apex", "apex/fused.so": "apex"}


def test_record_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    folder = install(site, "vllm", "1.0")
    (folder / "RECORD").unlink()
    os.mkfifo(folder / "RECORD")
    assert found(site) == {}


def test_stray_modules_are_assigned_by_name(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    install(site, "flash-attn", "2.8.3")
    for name in ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "amp_C.so"):
        (site / name).touch()
    strays = stray_modules([str(site)], look_at(site).distributions)
    assert {Path(path).name: (owner.name, owner.version) for path, owner in strays} == {
        "amp_C.so": ("amp-c", ""),
        "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so": ("flash-attn", "2.8.3"),
    }

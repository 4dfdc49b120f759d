"""Device files of GPUs, without similar files."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu.nodes import GpuNodes, gpu_nodes
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine


@pytest.mark.parametrize(
    ("files", "nodes"),
    [
        (["dev/nvidia1", "dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"], ("/dev/nvidia0", "/dev/nvidia1")),
        (["dev/nvidiactl", "dev/nvidia-uvm"], None),
        (["dev/dxg", "usr/lib/wsl/lib"], ("/dev/dxg",)),
        (["dev/dxg"], None),
    ],
)
def test_gpu_device_files_are_recognised(
    tmp_path: Path, files: list[str], nodes: tuple[str, ...] | None
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = gpu_nodes.collect(Machine(environ={}, root=tmp_path))
    assert found == GpuNodes(nodes) if nodes else isinstance(found, Absent)

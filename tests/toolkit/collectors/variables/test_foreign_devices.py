"""Handling of AMD's variables in verl's worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.variables.foreign_devices import ForeignDevices, foreign_devices
from verl_doctor.toolkit.facts import Unknown

BOTH = """
def set_up(environ):
    hip, rocr = environ.get("HIP_VISIBLE_DEVICES"), environ.get("ROCR_VISIBLE_DEVICES")
    if hip:
        assert hip == environ["CUDA_VISIBLE_DEVICES"], f"HIP_VISIBLE_DEVICES must be {hip}"
    if rocr:
        raise ValueError("no ROCR_VISIBLE_DEVICES beside it")
"""
ONLY_READ = (
    'def set_up(environ):\n    environ["CUDA_VISIBLE_DEVICES"] = environ.get("ROCR_VISIBLE_DEVICES")\n'
)


def of(folder: Path) -> ForeignDevices | Unknown:
    found = foreign_devices.collect(VerlTrees(Tree(str(folder), "verl", "", ""), ""))
    assert isinstance(found, (ForeignDevices, Unknown))
    return found


@pytest.mark.parametrize(
    ("source", "refused"), [(BOTH, ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")), (ONLY_READ, ())]
)
def test_device_variables_that_stop_a_worker(tmp_path: Path, source: str, refused: tuple[str, ...]) -> None:
    file = tmp_path / "single_controller" / "base" / "worker.py"
    file.parent.mkdir(parents=True)
    file.write_text(source, "utf-8")
    assert of(tmp_path) == ForeignDevices(refused, str(file))


def test_missing_file_is_unknown(tmp_path: Path) -> None:
    assert isinstance(of(tmp_path), Unknown)


@pytest.mark.real
@pytest.mark.parametrize(("version", "refused"), [("0.3.0.post1", 0), ("0.5.0", 2), ("0.9.1", 2)])
def test_real_releases(wheel_tree: Callable[[str, str], Path], version: str, refused: int) -> None:
    found = of(wheel_tree("verl", version) / "verl")
    assert isinstance(found, ForeignDevices)
    assert len(found.refused) == refused

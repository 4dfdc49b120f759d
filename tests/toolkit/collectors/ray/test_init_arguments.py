"""Arguments of `ray.init()`, read from Ray's sources, including hidden ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.ray.init_arguments import RayInitArguments, ray_init_arguments
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

WORKER = "def init(address: Optional[str] = None, *, num_cpus: Optional[int] = None, **kwargs):\n    folder = kwargs.pop('_temp_dir', None)\n    if kwargs:\n        raise RuntimeError\n"


@pytest.mark.parametrize(("folder", "missing"), [("there", ""), ("gone", "gone"), ("gone.zip", "")])
def test_arguments_and_the_smallest_store(tmp_path: Path, folder: str, missing: str) -> None:
    private = tmp_path / "ray" / "_private"
    private.mkdir(parents=True)
    (tmp_path / "there").mkdir()
    (private / "worker.py").write_text(WORKER)
    (private / "ray_constants.py").write_text("OBJECT_STORE_MINIMUM_MEMORY_BYTES = 75 * 1024 * 1024\n")
    trees = LibraryTrees((Tree(str(tmp_path / "ray"), "ray", "2.60.0", "site-packages"),))
    (there,) = configured(f"+ray_kwargs.ray_init.runtime_env.working_dir={tmp_path}/{folder}")
    found = ray_init_arguments.collect(trees, there, Machine(environ={}, cwd=tmp_path))
    assert isinstance(found, RayInitArguments)
    assert found.names == ("address", "num_cpus", "_temp_dir")
    assert found.numbers == ("num_cpus",)
    assert found.smallest_store == 75 << 20
    assert found.missing_folder == (f"{tmp_path}/{missing}" if missing else "")


def test_missing_ray_is_absent(tmp_path: Path) -> None:
    (there,) = configured()
    found = ray_init_arguments.collect(LibraryTrees(()), there, Machine(environ={}, cwd=tmp_path))
    assert isinstance(found, Absent)

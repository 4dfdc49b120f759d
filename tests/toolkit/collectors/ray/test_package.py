"""What Ray would upload: from a stand-in, and from real Rays, whose archive has the computed size."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.environments import interpreter
from support.ray import head

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting, WorkingDir
from verl_doctor.toolkit.collectors.ray.package import PackagePart, RayPackage, parts_of, ray_package
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output

MIB = 1 << 20
RAY = LibraryTrees((Tree("/env/ray", "ray", "2.60.0", "site-packages"),))
TOLD = {
    "size": 3 * MIB,
    "number": 7,
    "folders": [["ckpt", 2 * MIB, 0]],
    "files": [],
    "environments": [],
    "limits": {"store": 512 * MIB, "dashboard": 100 * MIB},
    "whole": True,
    "failed": "",
}


class Child:
    """A child with given output that records its requests."""

    def __init__(self, told: Any = TOLD) -> None:
        self.told = told
        self.order: dict[str, Any] = {}
        self.environ: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], env: Mapping[str, str], timeout: float) -> Output:
        self.order, self.environ = json.loads(argv[-1]), env
        said = f"{argv[-2]}{json.dumps(self.told)}" if self.told else ""
        return Output(0, said, "", 0.1)


def seen(
    named: WorkingDir | None,
    cwd: Path,
    child: Child | None = None,
    *settings: Setting,
    ray: LibraryTrees = RAY,
    submitted: bool = True,
) -> RayPackage | Unknown:
    launch = Launch((), settings, working_dir=named, submitted=submitted)
    machine = Machine(environ={}, cwd=cwd, runner=child or Child())
    found = ray_package.collect(machine, launch, interpreter(), ray, Variables({}))
    assert isinstance(found, (RayPackage, Unknown))
    return found


def test_submitted_job_is_uploaded_through_the_dashboard(tmp_path: Path) -> None:
    child = Child()
    named = WorkingDir("./", "/home/me/env.yaml", 3, ("/.git/",), "/home/me/env.yaml")
    setting = Setting("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1", "/home/me/run.sh", 2)
    found = seen(named, tmp_path, child, setting)
    assert isinstance(found, RayPackage)
    assert (found.limit, found.parts, found.line) == (100 * MIB, (PackagePart("ckpt/", 2 * MIB),), 3)
    assert child.order["folder"] == str(tmp_path)
    assert child.order["excludes"] == ["/.git/"]
    assert child.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] == "1"


def test_package_of_the_driver_goes_into_the_store(tmp_path: Path) -> None:
    found = seen(WorkingDir(str(tmp_path), "/home/me/run.sh", 1), tmp_path, submitted=False)
    assert isinstance(found, RayPackage)
    assert found.limit == 512 * MIB


def test_job_without_a_local_folder_is_absent(tmp_path: Path) -> None:
    assert isinstance(seen(None, tmp_path), Absent)
    assert isinstance(seen(WorkingDir("s3://bucket/job.zip", "run.sh", 1), tmp_path), Absent)


def test_undetermined_values_are_reported(tmp_path: Path) -> None:
    said = [
        seen(WorkingDir(None, "/home/me/run.sh", 4), tmp_path),
        seen(WorkingDir(".", "run.sh", 1), tmp_path, ray=LibraryTrees(())),
        seen(WorkingDir(".", "run.sh", 1), tmp_path, Child(None)),
    ]
    assert all(type(answer) is Unknown for answer in said)
    assert [answer.reason for answer in said if isinstance(answer, Unknown)] == [
        "/home/me/run.sh:4: the folder that is sent cannot be determined by reading",
        "Ray is not installed in this environment, and it decides what is packed",
        "Ray did not report what it would pack: the process ended with status 0 without a result",
    ]


def test_listed_parts_do_not_overlap_and_contain_no_code() -> None:
    folders = [
        ("out", 90 * MIB, 0),
        ("out/run1", 80 * MIB, 0),
        ("verl", 50 * MIB, 300),
        ("verl/assets", 40 * MIB, 0),
        (".venv", 30 * MIB, 9000),
        (".venv/lib", 30 * MIB, 9000),
        (".venv/share", 5 * MIB, 0),
        ("docs", 1000, 0),
    ]
    files = [("out/run1/a.pt", 70 * MIB), ("model.bin", 6 * MIB), ("verl/big.py", 2 * MIB), ("t.bin", 9)]
    assert [part.name for part in parts_of(folders, files, [".venv"])] == [
        "out/",
        "verl/assets/",
        ".venv/",
        "model.bin",
    ]


FILES = {
    "src/a.py": 10,
    "src/.gitignore": 0,
    "src/skipped.pt": 9000,
    "ckpt/model.bin": 3 * MIB,
    "ckpt/kept.txt": 5,
    "ünïcode name": 77,
    ".git/objects/x": 4000,
    "venv/pyvenv.cfg": 4,
}
PACK = """
import os, sys
from ray._private.runtime_env import packaging
from ray._private import ray_constants as c
given = getattr(c, "get_runtime_env_default_excludes", list)()
more = () if not given else (True,)
packaging._zip_files(sys.argv[1], [*given, "/.git/", "model.*"], sys.argv[2], *more)
print(os.path.getsize(sys.argv[2]))
"""


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.49.0", head.VERSION])
def test_computed_size_equals_the_archive_of_ray(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "job"
    for name, size in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (folder / "src" / ".gitignore").write_text("*.pt\n")
    (folder / "link").symlink_to(folder / "ckpt")
    python = head.environment(version) / "bin" / "python"
    launch = Launch((), working_dir=WorkingDir(str(folder), "run.sh", 1, ("/.git/", "model.*")))
    found = ray_package.collect(
        Machine(), launch, replace(interpreter(), executable=str(python)), RAY, Variables({})
    )
    assert isinstance(found, RayPackage), found
    packed = subprocess.run(
        [python, "-c", PACK, folder, tmp_path / "job.zip"], capture_output=True, text=True, check=True
    )
    assert found.size == int(packed.stdout)
    assert found.limit == 512 * MIB

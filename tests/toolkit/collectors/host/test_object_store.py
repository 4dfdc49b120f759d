"""Size of Ray's object store: from a miniature of Ray's constants, and compared with a real Ray."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.ray import head
from support.trying import unless_disturbed

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.limits_examples import an_h200_node, healthy
from verl_doctor.toolkit.collectors.host.limits import Group, HostLimits, host_limits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.memory import memory as host_memory
from verl_doctor.toolkit.collectors.host.object_store import ObjectStore, object_store
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory, shared_memory
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

GB = 10**9
CONSTANTS = """
import os
DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES = env_integer("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", (200) * (10**9))
DEFAULT_OBJECT_STORE_MEMORY_PROPORTION = env_float(
    "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION",
    0.3,
)
OBJECT_STORE_MINIMUM_MEMORY_BYTES = 75 * 1024 * 1024
REQUIRE_SHM_SIZE_THRESHOLD = 10**10
"""
MEMORY = HostMemory(1000 * GB, 900 * GB)
SHM = SharedMemory(500 * GB, 500 * GB)
NOBODY = Unknown("")


@pytest.fixture
def ray(tmp_path: Path) -> Tree:
    constants = tmp_path / "ray" / "_private" / "ray_constants.py"
    constants.parent.mkdir(parents=True)
    constants.write_text(CONSTANTS)
    return Tree(str(tmp_path / "ray"), "ray", "2.60.0", "site-packages")


def store(
    ray: Tree,
    *start: RayStart,
    memory: HostMemory = MEMORY,
    shm: SharedMemory = SHM,
    limits: HostLimits | None = None,
    words: tuple[str, ...] = (),
    **variables: str,
) -> ObjectStore | Unknown:
    found = object_store.collect(
        LibraryTrees((ray,)),
        memory,
        limits or an_h200_node(),
        shm,
        Variables(variables),
        RayStarts(start) if start else NOBODY,
        *(configured(*words) if words else (NOBODY,)),
    )
    assert isinstance(found, (ObjectStore, Unknown))
    return found


def size(found: ObjectStore | Unknown) -> tuple[int, str]:
    assert isinstance(found, ObjectStore), found
    return found.size, found.given_by


def test_store_size_is_a_bounded_share_of_free_memory(ray: Tree) -> None:
    assert size(store(ray, memory=HostMemory(100 * GB, 90 * GB))) == (27 * GB, "")
    assert size(store(ray)) == (200 * GB, "")
    assert size(store(ray, shm=SharedMemory(50 * GB, 40 * GB))) == (38 * GB, "")
    assert size(store(ray, shm=SharedMemory(64 << 20, 64 << 20))) == (10 * GB, "")


def test_container_limit_applies_and_slurm_limit_does_not(ray: Tree) -> None:
    def limited(folder: str) -> HostLimits:
        return an_h200_node(healthy(groups=(Group(folder, memory=100 * GB, memory_used=20 * GB),)))

    assert size(store(ray, limits=limited("/sys/fs/cgroup"))) == (24 * GB, "")
    assert size(store(ray, limits=limited("/sys/fs/cgroup/job"))) == (200 * GB, "")


def test_variables_replace_ray_defaults(ray: Tree) -> None:
    variables = {"RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "0.1"}
    assert size(store(ray, **variables)) == (90 * GB, "")


def test_sources_of_the_size(ray: Tree) -> None:
    start = RayStart("run.sh", 3, {"object-store-memory": "5000000000"})
    assert size(store(ray, start)) == (5 * GB, "--object-store-memory in run.sh:3")
    word = "+ray_kwargs.ray_init.object_store_memory=7000000000"
    assert size(store(ray, words=(word,))) == (7 * GB, "ray_kwargs.ray_init.object_store_memory")


def test_unknowns_are_reported(ray: Tree, tmp_path: Path) -> None:
    start = RayStart("run.sh", 3, {"object-store-memory": "$SIZE"})
    reported = store(ray, start)
    assert isinstance(reported, Unknown)
    assert reported.reason == "--object-store-memory in run.sh:3 is unknown: $SIZE"
    assert isinstance(store(ray, limits=an_h200_node(None, healthy(7))), Absent)
    constants = tmp_path / "ray" / "_private" / "ray_constants.py"
    constants.write_text(CONSTANTS.replace("10**10", "threshold()"))
    reported = store(ray)
    assert isinstance(reported, Unknown)
    assert reported.reason == "ray_constants.py of this Ray does not define REQUIRE_SHM_SIZE_THRESHOLD"


OWN = (
    "from ray._private import utils as u; print(u.resolve_object_store_memory(u.estimate_available_memory()))"
)


@pytest.mark.real
@pytest.mark.slow
@unless_disturbed
def test_real_ray_computes_the_same() -> None:
    environment = head.environment()
    folder = next(environment.glob("lib/python3*/site-packages/ray"))
    own = subprocess.run(
        [environment / "bin" / "python", "-c", OWN], capture_output=True, text=True, check=True
    )
    machine = Machine()
    limits, memory, shm = (
        host_limits.collect(machine, NOBODY, NOBODY),
        host_memory.collect(machine),
        shared_memory.collect(machine),
    )
    assert isinstance(limits, HostLimits)
    assert isinstance(memory, HostMemory)
    assert isinstance(shm, SharedMemory)
    tree = Tree(str(folder), "ray", head.VERSION, "site-packages")
    found = store(tree, memory=memory, shm=shm, limits=replace(limits, raylets=()))
    assert size(found)[0] == pytest.approx(int(own.stdout), rel=0.1)

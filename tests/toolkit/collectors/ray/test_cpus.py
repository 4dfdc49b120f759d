"""Ray's count of processors, by the files that its source names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.recorded import recorded

from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limits
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.ray.cpus import CpuFiles, RayCpus, files_read, ray_cpus
from verl_doctor.toolkit.facts import Absent, Unknown

RAY = """
def _get_docker_cpus(cpu_quota_file_name="/cg/quota", cpu_period_file_name="/cg/period", cpuset_file_name="/cg/set", cpu_max_file_name="/cg/max"):
    return None

def get_num_cpus(truncate=True):
    return multiprocessing.cpu_count()
"""
ONLINE = HostLimits(Limits(), online=64)


def count(
    root: Path, *, source: str = RAY, files: dict[str, str] | None = None, **environ: str
) -> RayCpus | Unknown:
    recorded(root, {"/ray/_private/utils.py": source})
    trees = LibraryTrees((Tree(str(root / "ray"), "ray", "2.9", ""),))
    return ray_cpus.collect(trees, ONLINE, recorded(root, files or {}, **environ))


@pytest.mark.parametrize(
    ("files", "counted"),
    [
        ({}, 64),
        ({"/cg/max": "1250000 100000\n"}, 12),
        ({"/cg/max": "max 100000\n"}, 64),
        ({"/cg/max": "50000 100000\n"}, 0),
        ({"/cg/quota": "-1\n", "/cg/period": "100000\n", "/cg/max": "400000 100000"}, 64),
        ({"/cg/quota": "800000\n", "/cg/period": "100000\n"}, 8),
        ({"/cg/set": "0-3,6\n"}, 5),
        ({"/cg/max": "1600000 100000\n", "/cg/set": "0-3\n"}, 4),
    ],
)
def test_cpu_limits_are_read_from_the_files_that_ray_reads(
    tmp_path: Path, files: dict[str, str], counted: int
) -> None:
    found = count(tmp_path, files=files)
    assert isinstance(found, RayCpus)
    assert found.counted == counted


def test_variables_override_the_cpu_count(tmp_path: Path) -> None:
    limited = {"/cg/max": "400000 100000\n"}
    counted_cpus = count(tmp_path, files=limited, RAY_USE_MULTIPROCESSING_CPU_COUNT="1")
    assert counted_cpus == RayCpus(64, "RAY_USE_MULTIPROCESSING_CPU_COUNT", "2.9")
    assert count(tmp_path, files={"/cg/max": ""}, PYTHON_CPU_COUNT="6") == RayCpus(
        6, "/sys/devices/system/cpu/online", "2.9"
    )


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def get_num_cpus(: pass",
        RAY.replace("multiprocessing.cpu_count()", "len(os.sched_getaffinity(0))"),
        RAY.replace("cpu_max_file_name", "something_new"),
        RAY.replace('"/cg/max"', "MAX"),
    ],
)
def test_unfamiliar_counting_code_is_unknown(tmp_path: Path, source: str) -> None:
    assert isinstance(count(tmp_path, source=source), Unknown)


def test_missing_ray_is_absent(tmp_path: Path) -> None:
    assert isinstance(ray_cpus.collect(LibraryTrees(()), ONLINE, recorded(tmp_path, {})), Absent)


@pytest.mark.real
@pytest.mark.parametrize("version", ["2.41.0", "2.49.2"])
def test_real_releases(wheel_tree: Callable[[str, str], Path], version: str) -> None:
    files = files_read(wheel_tree("ray", version) / "ray" / "_private" / "utils.py")
    assert isinstance(files, CpuFiles)
    assert files.named["cpu_max_file_name"] == "/sys/fs/cgroup/cpu.max"
    assert len(files.named) == 4

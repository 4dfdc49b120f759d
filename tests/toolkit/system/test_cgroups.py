"""Limits of control groups on machines of every kind, recorded as files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.recorded import recorded

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.cgroups import ControlGroups, Group, control_groups, count_of_list, is_frozen
from verl_doctor.toolkit.system.file_systems import file_systems

CG = "/sys/fs/cgroup"
GIB = 1 << 30
V2 = f"35 24 0:30 / {CG} ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"
NO_LIMIT_V1 = "9223372036854771712"


def groups(root: Path, mounts: str, own: str, files: Mapping[str, str]) -> ControlGroups:
    system = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": own}
    return control_groups(recorded(root, {**system, **files}))


@pytest.mark.parametrize("own", ["0::/pod/container\n", "4:memory:/job\n3:pids:/job\n0::/\n"])
def test_unmounted_groups_are_hidden(tmp_path: Path, own: str) -> None:
    assert groups(tmp_path, "24 1 0:22 / /proc rw - proc proc rw\n", own, {}) == ControlGroups(hidden=True)


def test_process_without_groups_hides_none(tmp_path: Path) -> None:
    assert groups(tmp_path, "", "", {}) == ControlGroups()


def test_version_2_in_a_container_with_a_private_namespace(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        V2,
        "0::/\n",
        {
            f"{CG}/cpu.max": "1600000 100000\n",
            f"{CG}/cpuset.cpus.effective": "0-31,64\n",
            f"{CG}/pids.max": "4096\n",
            f"{CG}/pids.current": "96\n",
            f"{CG}/memory.max": "1000\n",
            f"{CG}/memory.current": "900\n",
            f"{CG}/memory.stat": "anon 100\nactive_file 300\ninactive_file 200\n",
            f"{CG}/memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 2\n",
        },
    )
    assert found.groups == (Group(CG, 16.0, 33, 4096, 96, 1000, 400, 2),)
    assert found.pids
    assert found.pids.pids_left == 4000


def test_parent_limit_counts_and_the_tightest_group_is_named(tmp_path: Path) -> None:
    """Slurm limits the job and not the task; of the threads most are taken by others in the same slice."""
    job, task = f"{CG}/system.slice/job_7", f"{CG}/system.slice/job_7/step_0/task_0"
    found = groups(
        tmp_path,
        V2,
        "0::/system.slice/job_7/step_0/task_0\n",
        {
            f"{task}/cpu.max": "max 100000\n",
            f"{task}/pids.max": "max\n",
            f"{task}/memory.max": "max\n",
            f"{task}/memory.events": "oom_kill 1\n",
            f"{job}/cpuset.cpus.effective": "0-7\n",
            f"{task}/cpuset.cpus.effective": "0-7\n",
            f"{job}/memory.max": "64000\n",
            f"{job}/memory.events": "oom_kill 3\n",
            f"{job}/pids.max": "1000\n",
            f"{job}/pids.current": "10\n",
            f"{CG}/system.slice/pids.max": "5000\n",
            f"{CG}/system.slice/pids.current": "4900\n",
        },
    )
    assert found.cpus is None
    assert found.cpuset == Group(job, cpuset=8, pids=1000, pids_used=10, memory=64000, oom_kills=3)
    assert found.memory == found.oom_kills == found.cpuset
    assert found.pids
    assert (found.pids.folder, found.pids.pids_left) == (f"{CG}/system.slice", 100)


def test_version_1_in_docker_without_a_namespace(tmp_path: Path) -> None:
    """The container sees the host's path and has the folder of that path as its mount."""
    own = "".join(
        f"{n}:{name}:/docker/abc\n" for n, name in enumerate(["pids", "cpu,cpuacct", "memory", "cpuset"], 2)
    )
    mounts = "".join(
        f"{n} 30 0:{n} /docker/abc {CG}/{name} ro - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(["pids", "cpu,cpuacct", "memory", "cpuset"], 40)
    )
    found = groups(
        tmp_path,
        mounts,
        f"{own}1:name=systemd:/docker/abc\n0::/\n",
        {
            f"{CG}/pids/pids.max": "2048\n",
            f"{CG}/pids/pids.current": "1659\n",
            f"{CG}/cpu,cpuacct/cpu.cfs_quota_us": "750000\n",
            f"{CG}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            f"{CG}/cpuset/cpuset.cpus": "0-7\n",
            f"{CG}/memory/memory.limit_in_bytes": f"{NO_LIMIT_V1}\n",
            f"{CG}/memory/memory.usage_in_bytes": "700\n",
            f"{CG}/memory/memory.stat": "cache 9\ntotal_inactive_file 100\nhierarchical_memory_limit 8000\n",
            f"{CG}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        },
    )
    assert found.pids == Group(f"{CG}/pids", pids=2048, pids_used=1659)
    assert found.cpus == Group(f"{CG}/cpu,cpuacct", cpus=7.5)
    assert found.cpuset == Group(f"{CG}/cpuset", cpuset=8)
    # The limit of a group that the container cannot see.
    assert found.memory == Group(f"{CG}/memory", memory=8000, memory_used=600, oom_kills=4)
    assert found.memory_limit == 8000


def test_version_1_without_limits(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        f"40 30 0:40 / {CG}/memory rw - cgroup cgroup rw,memory\n41 30 0:41 / {CG}/cpu rw - cgroup cgroup rw,cpu\n",
        "4:memory:/user.slice\n3:cpu:/\n",
        {
            f"{CG}/memory/user.slice/memory.limit_in_bytes": NO_LIMIT_V1,
            f"{CG}/memory/memory.limit_in_bytes": NO_LIMIT_V1,
            f"{CG}/cpu/cpu.cfs_quota_us": "-1\n",
            f"{CG}/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert found == ControlGroups()
    assert found.memory_limit is None
    assert found.cpus is found.pids is found.oom_kills is None


def test_both_versions_at_once(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        f"40 30 0:40 / {CG}/pids rw - cgroup cgroup rw,pids\n41 30 0:41 / {CG}/unified rw - cgroup2 cgroup2 rw\n",
        "8:pids:/jobs/7\n0::/user.slice\n",
        {f"{CG}/pids/jobs/pids.max": "500\n", f"{CG}/unified/user.slice/memory.high": "900\n"},
    )
    assert found.groups == (Group(f"{CG}/pids/jobs", pids=500), Group(f"{CG}/unified/user.slice", memory=900))


@pytest.mark.parametrize("own", ["0::/../other\n", "0::/not/seen/here\n"])
def test_unreadable_group_falls_back_to_its_parents(tmp_path: Path, own: str) -> None:
    assert groups(tmp_path, V2, own, {f"{CG}/pids.max": "9\n"}).groups == (Group(CG, pids=9),)


@pytest.mark.parametrize("own", ["", "nonsense\n", "0::\n"])
def test_missing_mount_information_gives_no_groups(tmp_path: Path, own: str) -> None:
    assert groups(tmp_path, "", own, {f"{CG}/pids.max": "9\n"}) == ControlGroups()


@pytest.mark.parametrize(
    ("mounts", "own", "file", "states"),
    [
        (
            V2,
            "0::/job\n",
            "job/cgroup.events",
            {"populated 1\nfrozen 0\n": False, "populated 1\nfrozen 1\n": True},
        ),
        (
            f"36 24 0:31 / {CG}/freezer rw - cgroup cgroup rw,freezer\n",
            "6:freezer:/job/inner\n",
            "freezer/job/freezer.state",
            {"THAWED\n": False, "FREEZING\n": True, "FROZEN\n": True},
        ),
    ],
    ids=["version 2", "version 1, the group above"],
)
def test_process_in_a_frozen_group_is_detected(
    tmp_path: Path, mounts: str, own: str, file: str, states: Mapping[str, bool]
) -> None:
    for number, (state, frozen) in enumerate(states.items()):
        files = {"/proc/self/mountinfo": mounts, "/proc/7/task/7/cgroup": own, f"{CG}/{file}": state}
        if "inner" in own:
            files[f"{CG}/freezer/job/inner/cgroup.procs"] = "7\n"
        assert is_frozen(recorded(tmp_path / str(number), files), 7) == frozen


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 1), ("0-3,8", 5), ("0-1,4-5", 4), ("", None), ("max", None), ("0-", None), ("1,,2", None)],
)
def test_lists_of_numbers(text: str, number: int | None) -> None:
    assert count_of_list(text) == number


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="makes control groups")
def test_real_groups() -> None:
    """A process in a group below one with limits, of the version that is mounted here."""
    mounts = [mount for mount in file_systems(Machine()) if mount.kind in ("cgroup", "cgroup2")]
    limited = [
        (mount, name, limit)
        for controller, name, limit in (
            ("pids", "pids.max", "321"),
            ("memory", "memory.limit_in_bytes", str(GIB)),
            ("", "pids.max", "321"),
            ("", "memory.max", str(GIB)),
        )
        for mount in mounts
        if (controller in mount.options if controller else mount.kind == "cgroup2")
    ]
    with contextlib.ExitStack() as stack:
        made = {}
        for mount, name, limit in limited:
            folder = Path(mount.mounted_on, f"vd-{os.getpid()}")
            with contextlib.suppress(OSError):  # a controller of the other version
                (folder / "inner").mkdir(parents=True, exist_ok=True)
                stack.callback(_removed, folder)
                (folder / name).write_text(limit)
                made[name] = str(folder)
        child = stack.enter_context(subprocess.Popen(["sleep", "60"]))
        stack.callback(child.kill)
        for folder in set(made.values()):
            Path(folder, "inner", "cgroup.procs").write_text(str(child.pid))
        if "pids.max" not in made:
            pytest.skip("no control group with a limit can be made here")
        found = control_groups(Machine(), str(child.pid))
        assert found.pids
        assert (found.pids.folder, found.pids.pids, found.pids.pids_used) == (made["pids.max"], 321, 1)
        assert found.memory_limit == (GIB if len(made) > 1 else None)


def _removed(folder: Path) -> None:
    """Its process has ended or is ending."""
    for each in (folder / "inner", folder):
        for _ in range(100):
            with contextlib.suppress(OSError):
                each.rmdir()
            if not each.exists():
                break
            time.sleep(0.02)

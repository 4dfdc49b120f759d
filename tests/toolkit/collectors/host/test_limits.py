"""Limits of this shell and of raylets, from recorded machines."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.recorded import recorded

from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit, host_limits, limits_of
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             {soft}                 96365                processes
Max open files            1024                 1048576              files
Max locked memory         65536                65536                bytes
Max address space         unlimited            unlimited            bytes
"""
STATUS = "Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\nCapEff:\t{caps}\nCpus_allowed_list:\t0-7\n"


NO_SCRIPT = Absent("no launch script was named")


def process(
    name: str, *, soft: object = 4096, uid: int = 1000, threads: int = 1, caps: str = "0"
) -> dict[str, str]:
    return {
        f"/proc/{name}/limits": LIMITS.format(soft=soft),
        f"/proc/{name}/status": STATUS.format(uid=uid, threads=threads, caps=caps),
    }


def look(
    root: Path, files: Mapping[str, str], *running: Process, launched: Launch | Unknown = NO_SCRIPT
) -> HostLimits | Unknown:
    return host_limits.collect(recorded(root, files), Processes(running), launched)


def raylet(pid: int, *, mine: bool = True) -> Process:
    return Process(pid, 1, "raylet", "raylet", mine, 0.0)


def test_limits_of_the_raylet_are_read_separately(tmp_path: Path) -> None:
    found = look(
        tmp_path,
        {
            **process("self", threads=2),
            **process("7", soft=100, threads=30),
            **process("8", uid=1, threads=50),
            "/proc/7/cmdline": "/x/raylet\0--static_resource_list=node:10.0.0.1,1.0,CPU,64,memory,9\0--x=CPU,3",
            "/proc/loadavg": "0.1 0.2 0.3 2/345 12345\n",
            "/proc/sys/kernel/pid_max": "32768\n",
            "/sys/devices/system/cpu/online": "0-63\n",
        },
        raylet(7),
        raylet(8, mine=False),
    )
    assert isinstance(found, HostLimits)
    assert found.shell.processes == Limit(4096, 96365)
    assert found.shell.files == Limit(1024, 1048576)
    assert found.shell.addresses == Limit(None, None)
    (mine,) = found.raylets
    assert (mine.name, mine.processes, mine.ray_cpus) == ("the raylet (process 7)", Limit(100, 96365), 64.0)
    assert found.subjects == (mine,)
    assert found.others == (8,)
    assert (found.online, found.all_tasks, found.pid_max) == (64, 345, 32768)
    assert found.tasks == 30  # of this user alone; /proc/self is no process of its own


@pytest.mark.parametrize(
    ("script", "limit", "is_now"),
    [
        ("ulimit -n 65536", "files", Limit(65536, 65536)),
        ("ulimit -Sn 65536 || true", "files", Limit(65536, 1048576)),
        ("ulimit -S -n hard", "files", Limit(1048576, 1048576)),
        ("ulimit -Hn 2048", "files", Limit(1024, 1048576)),
        ("ulimit -n 2000000", "files", Limit(1024, 1048576)),
        ("ulimit -n 512 2>/dev/null; ulimit -n 2048", "files", Limit(512, 512)),
        ("ulimit -n \u0663; ulimit -n $N; ulimit -a; ulimit -n; ulimit", "files", Limit(1024, 1048576)),
        ("if [ -e /x ]; then ulimit -n 65536; fi", "files", Limit(1024, 1048576)),
        ("ulimit -c 0 -u 100", "processes", Limit(100, 100)),
        ("ulimit -v 8000000", "addresses", Limit(8192000000, 8192000000)),
        ("ulimit -l unlimited", "locked", Limit(65536, 65536)),
    ],
)
def test_ulimit_in_the_launch_script_changes_the_shell_limits(
    tmp_path: Path, script: str, limit: str, is_now: Limit
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{script}\npython -m verl.trainer.main_ppo a.b=1\n")
    read = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}, cwd=tmp_path))
    files = process("self") | process("7")
    found = look(tmp_path, files, raylet(7), launched=read)
    assert isinstance(found, HostLimits)
    assert getattr(found.shell, limit) == is_now
    assert found.raylets[0].files == Limit(1024, 1048576)


def test_root_raises_a_hard_limit(tmp_path: Path) -> None:
    read = Launch((), limits=(("-l", "unlimited"),))
    found = look(tmp_path, process("self", uid=0), launched=read)
    assert isinstance(found, HostLimits)
    assert found.shell.locked == Limit(None, None)


def test_cpu_count_is_the_minimum_of_affinity_and_cgroups(tmp_path: Path) -> None:
    machine = recorded(
        tmp_path,
        {
            **process("self"),
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            "/sys/fs/cgroup/cpu.max": "350000 100000\n",
        },
    )
    assert limits_of(machine).allowed == 8
    assert limits_of(machine).cpus == 3.5


@pytest.mark.parametrize(
    ("uid", "caps", "uid_map", "exempt"),
    [
        (0, "0", "0 0 4294967295", True),
        (0, "1ff", "0 100000 65536", False),
        (1000, f"{1 << 24:x}", "0 0 4294967295", True),
        (1000, f"{1 << 5:x}", "0 0 4294967295", False),
    ],
)
def test_process_limits_per_user(tmp_path: Path, uid: int, caps: str, uid_map: str, exempt: bool) -> None:
    machine = recorded(tmp_path, {**process("self", uid=uid, caps=caps), "/proc/self/uid_map": uid_map})
    assert limits_of(machine).exempt is exempt


def test_lockable_memory(tmp_path: Path) -> None:
    files = {**process("self", caps=f"{1 << 14:x}"), **process("7")}
    files |= {"/proc/self/uid_map": "0 0 4294967295", "/proc/7/uid_map": "0 100000 65536"}
    machine = recorded(tmp_path, files)
    assert limits_of(machine).lockable == math.inf
    assert limits_of(machine, 7).lockable == 65536
    assert limits_of(machine, 8).lockable == math.inf


def test_ended_raylet_is_left_out(tmp_path: Path) -> None:
    found = look(tmp_path, process("self"), raylet(7))
    assert isinstance(found, HostLimits)
    assert found.subjects == (found.shell,)


def test_system_without_proc(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path, {}), Absent)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_limits_of_another_real_process_are_read() -> None:
    """A child with its own limits, read from outside like those of a raylet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    child = subprocess.Popen(["sh", "-c", "ulimit -S -n 123; echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        assert child.stdout
        child.stdout.readline()
        assert limits_of(Machine(), child.pid).files == Limit(123, hard)
        assert limits_of(Machine()).files == Limit(soft, hard)
    finally:
        child.kill()
        child.communicate()

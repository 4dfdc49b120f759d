"""The rules about limits: silent on healthy machines, hints if the job may run elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.recorded import recorded

from verl_doctor.checks.shared.folders import roomy
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.gpus import Memory as GpuMemory
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.size import ModelSize
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.ray.cpus import RayCpus
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import CheckResult

GIB = 1 << 30
PERHAPS_HERE = JobHere("run.sh would start it here", certain=False)
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             {processes}              {processes}              processes
Max open files            {files}                20000                files
Max locked memory         {locked}            {locked}            bytes
Max address space         unlimited            unlimited            bytes
"""


@functools.cache
def loaded() -> registry.Registry:
    return registry.load()


def machine(
    root: Path,
    *,
    cpus: str = "0-31",
    uid: int = 0,
    processes: object = 1031199,
    files: int = 20000,
    locked: object = "unlimited",
    cgroup: str = "0::/\n",
    gib: int = 250,
    **more: str,
) -> Machine:
    """Limits recorded on an H200 node on 2026-11-21, with the given changes."""
    return recorded(
        root,
        {
            "/proc/self/limits": LIMITS.format(processes=processes, files=files, locked=locked),
            "/proc/self/status": f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t1\nCapEff:\t0\nCpus_allowed_list:\t{cpus}\n",
            "/proc/self/cgroup": cgroup,
            "/proc/self/mountinfo": "32 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
            "/proc/meminfo": f"MemTotal: {gib << 20} kB\nMemAvailable: {(gib - 2) << 20} kB\nCommitLimit: 9 kB\n",
            "/proc/loadavg": "0.5 0.4 0.3 1/420 946\n",
            "/proc/sys/vm/overcommit_memory": "1\n",
            "/proc/sys/kernel/pid_max": "32768\n",
            "/proc/sys/kernel/threads-max": "2062399\n",
            "/sys/devices/system/cpu/online": f"{cpus}\n",
            **{f"/{name}": text for name, text in more.items()},
        },
    )


def judged(
    there: Machine, gpus: int = 8, *facts: Any, ray: int = 32, shm: int = 125
) -> dict[str, CheckResult]:
    """Results of the rules about limits. Other facts are fixed."""
    known = loaded()
    h200 = tuple(Device(n, "NVIDIA H200", memory=GpuMemory(143771, 0, 143771)) for n in range(gpus))
    given: Mapping[type, Any] = {
        Machine: there,
        Gpus: Gpus(h200) if gpus else Absent("no NVIDIA device here"),
        VisibleDevices: VisibleDevices(tuple(range(gpus))),
        Launch: Absent("no launch script was named"),
        Configuration: Absent("no launch script was named"),
        EffectiveEnvironment: EffectiveEnvironment(),
        ModelSize: Absent("no model"),
        Variables: Variables(),
        Processes: Processes(),
        RayCpus: RayCpus(ray, "/sys/devices/system/cpu/online"),
        SharedMemory: SharedMemory(shm << 20 if shm > 1000 else shm * GIB, shm * GIB),
        Folders: Folders((roomy(), roomy("temporary files", "/tmp"))),
        **{type(fact): fact for fact in facts},
    }
    selected = Selection(select=("HOST",))
    results = judge(known.checks, Collection(known.collectors, given), selected, today=date(2026, 11, 21))
    return {result.code: result for result in results}


def messages(results: dict[str, CheckResult]) -> list[str]:
    return [f"{code}: {finding.message}" for code, result in results.items() for finding in result.findings]


def test_node_with_gpus_has_no_findings(tmp_path: Path) -> None:
    results = judged(machine(tmp_path))
    assert messages(results) == []
    assert {code for code, result in results.items() if result.status == "pass"} >= {
        "HOST101",
        "HOST102",
        "HOST103",
    }


def test_large_node_with_usual_limits_has_no_findings(tmp_path: Path) -> None:
    there = machine(
        tmp_path, cpus="0-191", uid=1000, processes=4125000, files=1048576, locked=8388608, gib=2000
    )
    assert messages(judged(there, ray=192)) == []


def test_head_node_without_gpus_has_no_findings(tmp_path: Path) -> None:
    """A container with Docker's 64 MB of shared memory and few process numbers."""
    there = machine(tmp_path, **{"sys/fs/cgroup/pids.max": "1024\n", "sys/fs/cgroup/pids.current": "20\n"})
    results = judged(there, 0, SharedMemory(64 << 20, 64 << 20))
    assert messages(results) == []
    assert results["HOST105"].status == "not_applicable"


def test_container_without_proc_and_cgroups_has_no_findings(tmp_path: Path) -> None:
    there = recorded(
        tmp_path, {"/proc/self/limits": LIMITS.format(processes="unlimited", files=1048576, locked=65536)}
    )
    assert messages(judged(there)) == []


def test_unreadable_limits_are_skipped_and_not_passed(tmp_path: Path) -> None:
    results = judged(recorded(tmp_path, {}))
    assert messages(results) == []
    assert results["HOST102"].status != "pass"


@pytest.mark.parametrize("gpus", [0, 1])
def test_laptop_has_no_findings(tmp_path: Path, gpus: int) -> None:
    group = "user.slice/user-1000.slice/user@1000.service"
    there = machine(
        tmp_path,
        cpus="0-15",
        uid=1000,
        processes=127000,
        files=1024,
        locked=8388608,
        gib=32,
        cgroup=f"0::/{group}\n",
        **{f"sys/fs/cgroup/{group}/pids.max": "38000\n", f"sys/fs/cgroup/{group}/pids.current": "2100\n"},
    )
    assert messages(judged(there, gpus, ray=16, shm=16)) == []


def test_limit_that_stops_ray_is_a_warning_if_the_job_may_run_elsewhere(tmp_path: Path) -> None:
    """A head node without GPUs, or a login node, with a launch script that is named."""
    there = machine(
        tmp_path, files=128, **{"sys/fs/cgroup/pids.max": "300\n", "sys/fs/cgroup/pids.current": "20\n"}
    )
    found = judged(there, 0, PERHAPS_HERE, SharedMemory(64 << 20, 64 << 20))
    assert {code: result.status for code, result in found.items() if result.findings} == {
        "HOST102": "warn",
        "HOST103": "warn",
        "HOST105": "warn",
    }


def test_other_limits_are_hints_if_the_job_may_run_elsewhere(tmp_path: Path) -> None:
    there = machine(tmp_path, **{"sys/fs/cgroup/cpu.max": "400000 100000\n"})
    found = judged(there, 0, PERHAPS_HERE, ray=128)
    (many,) = found["HOST101"].findings
    assert many.severity == "info"
    assert found["HOST101"].status == "pass"


def test_login_node_with_few_threads_and_files(tmp_path: Path) -> None:
    there = machine(tmp_path, cpus="0-127", uid=1000, processes=4096, files=1024, locked=65536)
    found = judged(there, 0, PERHAPS_HERE, ray=128)
    assert messages(found) == []


def test_limits_of_the_raylet_and_not_of_the_shell_are_judged(tmp_path: Path) -> None:
    """The shell has none of the limits of the service that started Ray."""
    unit = "system.slice/ray.service"
    there = machine(tmp_path)
    status = tmp_path.joinpath("proc/self/status").read_text().replace("0-31", "0-3")
    recorded(
        tmp_path,
        {
            "/proc/77/limits": LIMITS.format(processes=900, files=512, locked=65536),
            "/proc/77/status": status.replace("Uid:\t0\t0\t0\t0", "Uid:\t1000\t1000\t1000\t1000"),
            "/proc/77/cgroup": f"0::/{unit}\n",
            "/proc/77/cmdline": "raylet\0--static_resource_list=CPU,32",
            f"/sys/fs/cgroup/{unit}/pids.max": "1000\n",
            f"/sys/fs/cgroup/{unit}/pids.current": "600\n",
            f"/sys/fs/cgroup/{unit}/memory.max": f"{64 * GIB}\n",
            f"/sys/fs/cgroup/{unit}/memory.events": "oom 1\noom_kill 1\n",
        },
    )
    running = Processes((Process(77, 1, "raylet", "raylet", True, 0.0),))
    found = judged(there, 1, running)
    assert {code for code, result in found.items() if result.findings} == {
        "HOST101",
        "HOST102",
        "HOST111",
        "HOST114",
    }
    (few,) = found["HOST102"].findings
    assert f"/sys/fs/cgroup/{unit}/pids.max is 1000, and 600 are in use" in few.message
    (lower,) = found["HOST111"].findings
    for words in (
        "512 open files",
        "4 CPUs (this shell: 32)",
        "64.0 GiB of memory",
        "1000 processes and threads",
    ):
        assert words in lower.message

"""GPUs as reported by NVML: numbers, errors, and timeouts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from support.fake_nvml import HEALTHY, LOST, Nvml, NVMLError
from support.trying import unless_disturbed

from verl_doctor.toolkit.collectors.gpu.gpus import Bus, Fabric, Gpus, Health, Memory, MigDevice, Peers
from verl_doctor.toolkit.collectors.gpu.gpus_collector import gpus
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.probes import nvml as nvml_probe


def machine(root: Path, *, answer: Output | Exception, nodes: int = 1) -> Machine:
    """A machine with device files and this child output. `TOKEN` in it is replaced by the word passed to the child."""
    (root / "dev").mkdir()
    for number in range(nodes):
        (root / "dev" / f"nvidia{number}").touch()

    def run(argv: Sequence[str], _environ: Mapping[str, str], _limit: float) -> Output:
        if isinstance(answer, Exception):
            raise answer
        token = argv[3]
        return Output(answer.code, answer.stdout.replace("TOKEN", token), answer.stderr, 0.1)

    return Machine(environ={}, runner=run, root=root)


def seen(root: Path, nvml: Nvml, patience: float = 5.0) -> Gpus:
    """The fact, with this NVML in place of the driver's."""
    survey = json.dumps(nvml_probe.survey(nvml, patience))
    found = gpus.collect(machine(root, answer=Output(0, f"noise\nTOKEN{survey}\n", "", 0.1)))
    assert isinstance(found, Gpus)
    return found


def test_healthy_gpu(tmp_path: Path) -> None:
    found = seen(tmp_path, Nvml(HEALTHY, HEALTHY))
    assert (found.driver, found.cuda, found.refused) == ("580.159.04", "13.0", "")
    assert found.peers == (Peers(0, 1, "ok", nvlink=True),)
    one, other = found.devices
    assert (one.index, one.name, one.uuid, one.capability) == (0, "NVIDIA H200", "GPU-0123abcd", "9.0")
    assert one.place == "0000:c6:00"
    assert one.memory == Memory(143771, 0, 143155, 616)
    assert one.memory.usable == 143155
    assert one.health == Health(True, 0, 0, remap_pending=False, remap_failed=False)
    assert one.fabric == Fabric("completed")
    assert one.bus == Bus(16, 16, 5, 5)
    assert (one.links, one.links_active, one.slowdowns, one.temperature) == (18, 18, (), 39)
    assert (one.power_limit, one.power_default, one.persistence, one.compute_mode) == (
        700,
        700,
        True,
        "default",
    )
    assert (one.mig, one.holders, one.trouble, one.unattributed) == (False, (), "", 0)
    assert other.index == 1


def test_values_that_a_gpu_does_not_support_are_left_out(tmp_path: Path) -> None:
    """A gaming GPU has no ECC, no row remapping and no fabric, and old bindings lack functions."""
    few = {
        name: HEALTHY[name] for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo")
    }
    few["fabric"] = NVMLError(3, "Not Supported")
    device = seen(tmp_path, Nvml(few, links=0)).devices[0]
    assert device.health == Health()
    assert device.fabric == Fabric()
    assert (device.bus, device.links, device.persistence, device.trouble) == (None, 0, None, "")


@pytest.mark.parametrize(
    ("answers", "field", "value"),
    [
        ({"nvmlDeviceGetCurrentClocksThrottleReasons": 0x04 | 0x01}, "slowdowns", ()),
        ({"nvmlDeviceGetCurrentClocksThrottleReasons": 0x48}, "slowdowns", ("hardware slowdown", "hardware thermal slowdown")),
        ({"nvmlDeviceGetCurrentClocksThrottleReasons": 0x88}, "slowdowns", ("hardware slowdown", "power brake")),
        ({"nvmlDeviceGetComputeMode": 3}, "compute_mode", "exclusive process"),
        ({"nvmlDeviceGetComputeMode": 9}, "compute_mode", "unknown (9)"),
        ({"fabric": (2, 0, 0)}, "fabric", Fabric("in progress")),
        ({"fabric": (3, 999, 0x11)}, "fabric", Fabric("completed", 999, ("degraded bandwidth", "an unhealthy route"))),
        ({"links": [1] * 17 + [0]}, "links_active", 17),
        ({"nvmlDeviceGetPersistenceMode": 0}, "persistence", False),
    ],
)  # fmt: skip
def test_numbers_get_their_names(tmp_path: Path, answers: dict[str, Any], field: str, value: object) -> None:
    assert getattr(seen(tmp_path, Nvml({**HEALTHY, **answers})).devices[0], field) == value


def test_remembered_errors_are_read(tmp_path: Path) -> None:
    sick = {
        **HEALTHY,
        "nvmlDeviceGetTotalEccErrors": 2,
        "nvmlDeviceGetRemappedRows": (0, 1, 1, 1),
        "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=1))],
    }
    assert seen(tmp_path, Nvml(sick)).devices[0].health == Health(True, 2, 2, True, True, "reset the GPU")


def test_retired_pages_of_older_gpus_are_read(tmp_path: Path) -> None:
    older = {**HEALTHY, "nvmlDeviceGetRetiredPagesPendingStatus": 1}
    del older["nvmlDeviceGetRemappedRows"]
    health = seen(tmp_path, Nvml(older)).devices[0].health
    assert (health.remap_pending, health.remap_failed) == (True, None)


def test_mig_devices(tmp_path: Path) -> None:
    class Divided(Nvml):
        def nvmlDeviceGetMigDeviceHandleByIndex(self, device: int, index: int) -> int:
            if index == 1:
                raise NVMLError(6, "Not Found")
            return device

    divided = {**HEALTHY, "nvmlDeviceGetMigMode": (1, 1), "nvmlDeviceGetMaxMigDeviceCount": 2}
    device = seen(tmp_path, Divided(divided)).devices[0]
    assert device.mig
    assert device.mig_devices == (MigDevice("NVIDIA H200", "GPU-0123abcd", 143771),)


def test_lost_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    lost = {"nvmlDeviceGetHandleByIndex": NVMLError(LOST, "GPU is lost")}
    found = seen(tmp_path, Nvml(HEALTHY, lost, HEALTHY))
    assert [device.trouble for device in found.devices] == ["", "GPU is lost", ""]
    assert [device.index for device in found.sound] == [0, 2]
    assert found.peers == (Peers(0, 2, "ok", nvlink=True),)


def test_gpu_lost_during_the_query_is_reported(tmp_path: Path) -> None:
    lost = {**HEALTHY, "nvmlDeviceGetMemoryInfo": NVMLError(LOST, "GPU is lost")}
    assert seen(tmp_path, Nvml(lost)).devices[0].trouble == "GPU is lost"


@unless_disturbed
def test_hanging_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    found = seen(tmp_path, Nvml(HEALTHY, {**HEALTHY, "nvmlDeviceGetEccMode": "hangs"}), patience=0.2)
    assert [device.trouble for device in found.devices] == ["", "it hangs when queried"]


def test_failing_query_does_not_affect_the_others(tmp_path: Path) -> None:
    """pynvml raises other exceptions, too, when the driver is older than it."""
    odd = {**HEALTHY, "nvmlDeviceGetEccMode": RuntimeError("library mismatch")}
    device = seen(tmp_path, Nvml(odd)).devices[0]
    assert (device.trouble, device.health.ecc, device.temperature) == ("", None, 39)


def test_processes_are_read_from_an_older_driver(tmp_path: Path) -> None:
    older = {
        **HEALTHY,
        "nvmlDeviceGetComputeRunningProcesses_v2": [SimpleNamespace(pid=1 << 30, usedGpuMemory=5 << 20)],
    }
    del older["nvmlDeviceGetComputeRunningProcesses_v3"]
    assert [holder.memory for holder in seen(tmp_path, Nvml(older)).devices[0].holders] == [5]


def test_unreachable_peers_are_reported(tmp_path: Path) -> None:
    apart = {**HEALTHY, "peers": {(1, 0): 3, (1, 2): 5}}
    assert seen(tmp_path, Nvml(apart, HEALTHY)).peers == (Peers(0, 1, "topology not supported"),)


def test_gpu_process_is_looked_up_in_the_process_table(tmp_path: Path) -> None:
    """This test has no GPU open, so its own process number means another process: one of the host."""
    used = SimpleNamespace(total=100 << 20, used=60 << 20, free=40 << 20, reserved=0)
    processes = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=10 << 20),
        SimpleNamespace(pid=1 << 30, usedGpuMemory=None),
    ]
    held = {**HEALTHY, "nvmlDeviceGetMemoryInfo": used, "nvmlDeviceGetComputeRunningProcesses_v3": processes}
    device = seen(tmp_path, Nvml(held)).devices[0]
    assert [(holder.pid, holder.memory, holder.seen) for holder in device.holders] == [
        (os.getpid(), 10, False),
        (1 << 30, None, False),
    ]
    assert device.unattributed == 50


def test_graphics_processes_count_as_holders_of_memory(tmp_path: Path) -> None:
    """A process may be in both of NVML's lists."""
    drawing = [
        SimpleNamespace(pid=1 << 30, usedGpuMemory=5 << 20),
        SimpleNamespace(pid=(1 << 30) + 1, usedGpuMemory=6 << 20),
    ]
    held = {
        **HEALTHY,
        "nvmlDeviceGetComputeRunningProcesses_v3": drawing[:1],
        "nvmlDeviceGetGraphicsRunningProcesses_v3": drawing,
    }
    device = seen(tmp_path, Nvml(held)).devices[0]
    assert [holder.memory for holder in device.holders] == [5, 6]


def test_machine_without_a_gpu_is_absent(tmp_path: Path) -> None:
    survey = json.dumps({"refused": [12, "NVML Shared Library Not Found"]})
    found = gpus.collect(machine(tmp_path, answer=Output(0, f"TOKEN{survey}", "", 0.1), nodes=0))
    assert isinstance(found, Absent)


def test_container_with_devices_but_without_the_library(tmp_path: Path) -> None:
    survey = json.dumps({"refused": [12, "NVML Shared Library Not Found"]})
    found = gpus.collect(machine(tmp_path, answer=Output(0, f"TOKEN{survey}", "", 0.1)))
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)
    assert "utility" in found.reason


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (Output(0, 'TOKEN{"refused": [18, "RM has detected an NVML/RM version mismatch."]}', "", 0.1), "version mismatch"),
        (Output(None, "", "", 8.0), "did not end within 8 s"),
        (Output(-11, "", "", 0.1), "ended by signal 11"),
    ],
)  # fmt: skip
def test_silent_nvml_with_devices_is_reported(tmp_path: Path, answer: Output, refused: str) -> None:
    found = gpus.collect(machine(tmp_path, answer=answer))
    assert isinstance(found, Gpus)
    assert refused in found.refused
    assert found.devices == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Output(1, "TOKEN{broken", "ImportError: no ctypes", 0.1), "no ctypes"),
        (Output(0, "", "", 0.1), "ended with status 0 without a result"),
        (FileNotFoundError(2, "No such file"), "cannot be started"),
    ],
)
def test_failure_of_the_doctor_is_not_blamed_on_the_driver(
    tmp_path: Path, answer: Output | Exception, why: str
) -> None:
    found = gpus.collect(machine(tmp_path, answer=answer))
    assert type(found) is Unknown
    assert why in found.reason


def test_child_really_runs(tmp_path: Path) -> None:
    """Whatever machine this is: an answer, and none about a missing word or module."""
    found = gpus.collect(Machine(root=tmp_path))
    assert isinstance(found, (Absent, Gpus))


def test_missing_library_is_reported_as_by_the_bindings(tmp_path: Path) -> None:
    found = nvml_probe.answer(str(tmp_path), str(tmp_path / "libnvidia-ml.so.1"))
    survey = str(pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert found == {"refused": [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, survey]}


def test_bindings_are_queried_with_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(pynvml, "nvmlLib", OldDriver())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    found = nvml_probe.answer(str(Path(pynvml.__file__).parent), "libc.so.6")
    assert found["driver"] == "470.57.02"


class OldDriver:
    """The functions of a driver of 2021 under NVIDIA's own bindings; the many that came later are missing."""

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, _index: Any, _handle: Any) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _length: Any) -> int:
        text.value = b"470.57.02"
        return 0

    def nvmlDeviceGetName(self, _device: Any, text: Any, _length: Any) -> int:
        text.value = b"NVIDIA A100-SXM4-80GB"
        return 0

    def nvmlDeviceGetMemoryInfo(self, _device: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.free = 81920 << 20, 500 << 20, 81420 << 20
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v2(self, _device: Any, count: Any, _processes: Any) -> int:
        count._obj.value = 0
        return 0


def test_current_bindings_work_with_an_old_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", OldDriver())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    found = seen(tmp_path, pynvml)
    (device,) = found.devices
    assert (found.driver, device.trouble) == ("470.57.02", "")
    assert device.name == "NVIDIA A100-SXM4-80GB"
    assert device.memory == Memory(81920, 500, 81420, 0)
    assert (device.health, device.fabric, device.holders) == (Health(), Fabric(), ())

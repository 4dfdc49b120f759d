"""A collective that is tried for real, on a miniature of torch: it works, hangs, dies, floods, or only works with a variable."""

from __future__ import annotations

import sys

import pytest
from support.places import SUPPORT

from verl_doctor.toolkit.collectors.cuda import collective as cuda_collective
from verl_doctor.toolkit.collectors.cuda.collective import Collective, collective
from verl_doctor.toolkit.collectors.cuda.collective_trial import Trial, trial_of, try_collective
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Fabric, Gpus, Memory
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

MINIATURE = SUPPORT / "miniature_torch"
SHORT = 8.0  # seconds of a trial that hangs, when its ranks have been started
LONG = 60.0  # of one that ends by itself, on a machine that does much else
TARGET = Interpreter(sys.executable, "3.11", "cpython", "", "venv", "", (), (), "Linux", "x86_64", "", "", "")
FREE = Memory(143771, 0, 143155, 616)


def box(wrong: str = "", **environ: str) -> Machine:
    return Machine(environ={"PYTHONPATH": str(MINIATURE), "PATH": "/usr/bin", "MINIATURE": wrong, **environ})


def tried(wrong: str = "", *, limit: float = SHORT) -> Trial:
    machine = box(wrong)
    result = try_collective(machine, sys.executable, "gloo", 2, machine.environ, limit)
    assert not isinstance(result, Unknown)
    return trial_of((), result)


def on(machine: Machine, *devices: Device, **job: str) -> Collective | Unknown:
    gpus = Gpus(devices or (Device(0, memory=FREE), Device(1, memory=FREE)))
    visible = VisibleDevices(tuple(device.index for device in gpus.devices))
    script = JobVariables(job, dict.fromkeys(job, ("run.sh", 2)))
    found = collective.collect(machine, TARGET, gpus, visible, Variables(), script)
    assert isinstance(found, (Collective, Unknown))
    return found


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_collective, "LIMIT", LONG)


def test_collective_succeeds() -> None:
    found = tried(limit=LONG)
    assert (found.works, found.stuck, found.ended, found.messages) == (True, "", (), ())
    assert found.bandwidth > 0


@pytest.mark.slow
def test_hanging_rank_is_reported() -> None:
    found = tried("1:sleeps")
    assert (found.works, found.stuck, found.ended) == (False, "the first all-reduce", ())


@pytest.mark.slow
def test_failing_rank_reports_its_error() -> None:
    found = tried("0:dies", limit=LONG)
    assert (found.works, found.ended[:1]) == (False, (1,))
    assert found.messages == (
        "NCCL WARN Cuda failure 217 'peer access is not supported'",
        "RuntimeError: NCCL error: unhandled cuda error",
    )
    assert found.seconds < LONG  # it is not waited for as long as one that hangs


@pytest.mark.slow
def test_crashing_rank_is_reported() -> None:
    assert -6 in tried("1:crashes", limit=LONG).ended  # the other one may notice, and fail too


@pytest.mark.slow
def test_rank_output_is_limited() -> None:
    machine = box("1:floods")
    result = try_collective(machine, sys.executable, "gloo", 2, machine.environ, SHORT)
    assert not isinstance(result, Unknown)
    assert len(result["ranks"][1]["printed"]) == 256 * 1024
    assert result["ranks"][0]["stage"] == "the first all-reduce"


@pytest.mark.slow
def test_damaged_numbers_are_detected() -> None:
    found = tried("1:damages", limit=LONG)
    assert (found.works, found.wrong) == (False, True)


@pytest.mark.slow
def test_no_remedy_is_tried_if_the_plain_trial_works() -> None:
    found = on(box())
    assert isinstance(found, Collective)
    assert (found.gpus, found.nccl, len(found.trials), found.remedy) == ((0, 1), "2.28.9", 1, ())


@pytest.mark.slow
def test_first_remedy_that_works_is_reported() -> None:
    found = on(box("P2P:dies"))
    assert isinstance(found, Collective)
    assert [trial.works for trial in found.trials] == [False, False, True]
    assert found.remedy == (("NCCL_P2P_DISABLE", "1"),)


@pytest.mark.slow
def test_workarounds_set_by_the_user_are_left_out_of_the_plain_trial() -> None:
    found = on(box("P2P:dies", NCCL_P2P_DISABLE="1"))
    assert isinstance(found, Collective)
    assert not found.plain.works


@pytest.mark.slow
def test_launch_script_variables_apply_except_workarounds() -> None:
    found = on(box(), MINIATURE="P2P:dies", NCCL_P2P_DISABLE="1")
    assert isinstance(found, Collective)
    assert [trial.works for trial in found.trials] == [False, False, True]


@pytest.mark.slow
def test_no_remedy_is_reported_if_none_works() -> None:
    found = on(box("1:dies"))
    assert isinstance(found, Collective)
    assert (len(found.trials), found.remedy) == (4, ())


def test_remedies_without_effect_are_not_tried() -> None:
    switched = Device(0, fabric=Fabric("completed"))
    names = [remedy[0][0] for remedy in cuda_collective._remedies([switched], {})]
    assert names == ["NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_DISABLE"]
    for devices, environ in (([Device(0)], {}), ([switched], {"NCCL_NVLS_ENABLE": "0"})):
        assert next(cuda_collective._remedies(devices, environ))[0][0] == "NCCL_CUMEM_HOST_ENABLE"


@pytest.mark.slow
def test_nccl_is_not_judged_without_torch() -> None:
    found = on(box("import:fails"))
    assert isinstance(found, Unknown)
    assert "importing torch failed: ImportError: libcudart.so.13" in found.reason


@pytest.mark.parametrize(
    ("devices", "kind", "reason"),
    [
        ((Device(0, memory=FREE),), Absent, "needs two GPUs"),
        ((Device(0, memory=FREE), Device(1, trouble="GPU is lost")), Absent, "needs two GPUs"),
        ((Device(0, memory=FREE, mig=True), Device(1, memory=FREE)), Absent, "MIG devices"),
        ((Device(0, memory=FREE), Device(1, memory=Memory(100_000, 99_000, 1000))), Unknown, "GPU 1 has only 1000 MiB free"),
    ],
)  # fmt: skip
def test_situations_in_which_nothing_is_tried(devices: tuple[Device, ...], kind: type, reason: str) -> None:
    found = on(box(), *devices)
    assert type(found) is kind
    assert reason in found.reason

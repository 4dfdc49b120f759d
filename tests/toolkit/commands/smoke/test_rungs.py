"""Rungs 1 to 4 on packages of a few lines: the right code and cause for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.environments import interpreter
from support.miniatures.smoke import RAY, TORCH, UTIL, VLLM, packages, stage

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.commands.smoke import smoke
from verl_doctor.toolkit.commands.smoke.child import Ran
from verl_doctor.toolkit.commands.smoke.folder import long_as
from verl_doctor.toolkit.commands.smoke.ray import with_the_jobs_path
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.commands.smoke.rungs import devices, imports, ray, vllm
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system.supervised import NotStarted

RUNGS = {1: imports, 2: devices, 3: ray, 4: vllm}
HANGS = "import time\ntime.sleep(60)"
# The rung, the package that is changed, its text, the code, and with what the cause begins.
FAULTS = {
    "a package is missing": (
        1,
        "verl__trainer__main_ppo",
        "import transfer_queue",
        "SMOKE101",
        "import verl.trainer.main_ppo: ModuleNotFoundError: No module named 'transfer_queue'",
    ),
    "a library cannot be opened": (
        1,
        "torch",
        "import ctypes\nctypes.CDLL('libgomp_of_nobody.so.1')",
        "SMOKE101",
        "import torch: OSError: libgomp_of_nobody.so.1: cannot open shared object file",
    ),
    "an import kills its process": (
        1,
        "vllm",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "SMOKE101",
        "import vllm: the process was ended by SIGSEGV without giving a reason",
    ),
    "torch computes wrongly": (
        2,
        "torch",
        TORCH.replace("= 256", "= 255"),
        "SMOKE104",
        "multiply on cpu: RuntimeError: it computes wrong results",
    ),
    "Ray does not start": (
        3,
        "ray",
        RAY + "\ndef init(**options): raise OSError('AF_UNIX path length cannot exceed 107 bytes: x')",
        "SMOKE106",
        "start Ray: OSError: AF_UNIX path length cannot exceed 107 bytes",
    ),
    "Ray hands no variables on": (
        3,
        "ray",
        RAY.replace('os.environ.update(runtime_env["env_vars"], CUDA', "os.environ.update(CUDA"),
        "SMOKE107",
        "an actor: RuntimeError: the actor has VERL_DOCTOR_SMOKE_WORD=None",
    ),
    "Ray places nothing": (
        3,
        "ray__util",
        UTIL.replace("return True", "return False"),
        "SMOKE107",
        "a placement group: RuntimeError: Ray did not place 1 x 1 GPU and 1 CPU within 60 s; it has {'CPU': 3.0",
    ),
    "a worker group of verl's fails": (
        3,
        "verl",
        "",
        "SMOKE107",
        "a worker group of verl's: ModuleNotFoundError: No module named 'verl.single_controller'",
    ),
    "vLLM cannot be imported": (4, "vllm", "import outlines_9", "SMOKE101", "import vllm: ModuleNotFoundError"),
    "an architecture is not known": (
        4,
        "vllm",
        VLLM.replace("print(", "raise ValueError('Model architectures are not supported for now', "),
        "SMOKE108",
        "load the model: ValueError: ('Model architectures are not supported for now'",
    ),
    "too few tokens come out": (
        4,
        "vllm",
        VLLM.replace("[1] * tokens", "[1]"),
        "SMOKE109",
        "generate: RuntimeError: vLLM generated [1, 1] tokens instead of 16 each",
    ),
}  # fmt: skip


def climbed(rung: int, tmp_path: Path, **changed: str) -> Outcome:
    outcome: Outcome = RUNGS[rung].climb(stage(tmp_path, packages(tmp_path / "site", **changed)))  # type: ignore[attr-defined]
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "package", "text", "code", "cause"), FAULTS.values(), ids=FAULTS)
def test_cause_of_a_fault_is_named(
    rung: int, package: str, text: str, code: str, cause: str, tmp_path: Path
) -> None:
    outcome = climbed(rung, tmp_path, **{package: text})
    assert (outcome.status, outcome.code) == ("failed", code)
    assert outcome.cause.startswith(cause)
    assert outcome.log is not None
    assert bool(outcome.log.read_text()) is ("SIGSEGV" not in cause)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "steps"),
    [
        (1, {"import vllm", "import verl", "import verl.trainer.main_ppo", "import torch", "import ray"}),
        (2, {"multiply on cpu"}),
        (4, {"import vllm", "load the model", "generate"}),
    ],
)
def test_healthy_packages_pass_and_report_their_steps(rung: int, steps: set[str], tmp_path: Path) -> None:
    outcome = climbed(rung, tmp_path)
    assert (outcome.status, outcome.cause) == ("passed", "")
    assert {step.name for step in outcome.steps} == steps


@pytest.mark.slow
def test_hanging_import_is_ended_and_the_others_are_reported(tmp_path: Path) -> None:
    one = stage(tmp_path, packages(tmp_path / "site", ray=HANGS), budget=1.0)
    outcome = imports.climb(one)
    assert (outcome.code, outcome.cause) == ("SMOKE111", "import ray: it did not finish within 1 s")
    assert "import torch" in {step.name for step in outcome.steps}


@pytest.mark.slow
def test_ray_waiting_for_missing_resources_is_ended_at_once(tmp_path: Path) -> None:
    error_line = 'print("Error: No available node types can fulfill resource request {GPU: 8}.")'
    one = stage(tmp_path, packages(tmp_path / "site", ray=f"{error_line}\n{HANGS}"))
    outcome = ray.climb(one)
    assert "Ray waits for what it does not have: No available node types" in outcome.cause


def test_missing_files_are_reported_before_any_import(tmp_path: Path) -> None:
    one = stage(tmp_path, packages(tmp_path / "site", torch=HANGS))
    one.facts.give(
        DataFiles, DataFiles((DataFile("/data/t.parquet", "named", "--data", "parquet", "missing"),))
    )  # type: ignore[attr-defined]
    outcome = imports.climb(one)
    assert (outcome.code, outcome.cause) == ("SMOKE103", "/data/t.parquet (--data): missing")


def test_gpu_build_of_vllm_is_not_tried_without_a_gpu(tmp_path: Path) -> None:
    one = stage(tmp_path, tmp_path)
    one.facts.give(VllmPlatform, VllmPlatform("cuda", "torch 2.11.0+cu130"))  # type: ignore[attr-defined]
    outcome = vllm.climb(one)
    assert (outcome.status, outcome.code) == ("not applicable", "")
    assert "a vLLM for processors is needed: it is for cuda (torch 2.11.0+cu130)" in outcome.cause


SLEEPS = (
    VLLM
    + "    def sleep(self, level): given(-{back})\n    def wake_up(self): given({back})\nused = 2 << 30\n"
)
SLEEPS += "def given(more):\n    global used\n    used += more\n"
NVML = """
import vllm
asked = []
class nvmlDeviceGetMemoryInfo:
    def __init__(self, handle):
        asked.append(1)
        self.used = vllm.used if len(asked) > 1 else 1 << 30
NVMLError = RuntimeError
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda index: index
"""


@pytest.mark.parametrize(("back", "status"), [(900 << 20, "passed"), (0, "failed")])
def test_memory_kept_by_a_sleeping_engine_is_a_fault(back: int, status: str, tmp_path: Path) -> None:
    site = packages(tmp_path / "site", vllm=SLEEPS.format(back=back), pynvml=NVML)
    outcome = vllm.climb(stage(tmp_path, site, device="cuda"))
    message = outcome.cause or outcome.notes[-1]
    assert outcome.status == status
    assert outcome.code == ("" if back else "SMOKE110")
    assert message.startswith("the engine took 1.0 GiB of the GPUs' memory and gave back")


@pytest.mark.slow
def test_imports_run_without_garbage_collector(tmp_path: Path) -> None:
    text = "import gc\nif gc.isenabled(): raise OSError('it collects garbage')\n"
    outcome = climbed(1, tmp_path, verl__trainer__main_ppo=text)
    assert (outcome.status, outcome.cause) == ("passed", "")


def test_processes_share_few_cores(tmp_path: Path) -> None:
    one: Stage = stage(tmp_path, packages(tmp_path / "site"))
    few, many = imports.lanes_for(one, 2), imports.lanes_for(one, 8)
    assert few == [("torch", "vllm"), ("ray", "verl", "verl.trainer.main_ppo")]
    assert len(many) >= len(few)
    named = [module for lane in many for module in lane]
    assert len({*named}) == len(named), "nothing is imported twice"


def test_overlong_path_is_shown_as_the_job_has_it(tmp_path: Path) -> None:
    one = stage(tmp_path, packages(tmp_path / "site"), environ={"RAY_TMPDIR": "/" + "y" * 180 + "/"})
    private = long_as(one.folder, one.environ, "RAY_TMPDIR")
    message = f"OSError: AF_UNIX path length cannot exceed 107 bytes: {private}/ray/sockets"
    outcome = with_the_jobs_path(one, Outcome("failed", message, lines=("  raise", message)))
    wanted = message.replace(str(private), "/" + "y" * 180)
    assert (outcome.cause, outcome.lines) == (wanted, ("  raise", wanted))
    assert outcome.notes[0].endswith("RAY_TMPDIR=/" + "y" * 180 + "/ (182 characters)")
    short = stage(tmp_path, one.folder, environ={"RAY_TMPDIR": "/tmp"})
    assert with_the_jobs_path(short, Outcome("failed", message)) == Outcome("failed", message)


def test_vllm_gets_a_small_share_of_a_large_gpu_and_no_graphs(tmp_path: Path) -> None:
    one = stage(tmp_path, tmp_path, device="cuda")
    one.facts.give(Gpus, Gpus((Device(0, memory=Memory(143_771, 600, 142_500, 671)),)))  # type: ignore[attr-defined]
    one.facts.give(VisibleDevices, VisibleDevices((0,)))  # type: ignore[attr-defined]
    given = vllm._arguments(one)
    assert given["gpu_memory_utilization"] < 0.05
    assert (given["enforce_eager"], given["max_model_len"]) == (True, 256)


def test_memory_released_by_sleep_is_unknown_without_nvml(tmp_path: Path) -> None:
    fails = NVML.replace("nvmlInit = ", "def nvmlInit(): raise NVMLError('no driver')\n")
    site = packages(tmp_path / "site", vllm=SLEEPS.format(back=0), pynvml=fails)
    outcome = vllm.climb(stage(tmp_path, site, device="cuda"))
    assert outcome.status == "passed"
    assert outcome.notes == ("how much memory sleep releases: NVML does not report it here",)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (NotStarted(2, "No such file", "python9"), "python9 cannot be started: No such file"),
        (FileNotFoundError(2, "No such file", "dm/x.bin"), "could not be tried: dm/x.bin: No such file"),
    ],
)
def test_missing_file_is_distinguished_from_a_child_that_cannot_start(
    error: OSError, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def climb(_: Stage) -> Outcome:
        raise error

    monkeypatch.setattr(imports, "climb", climb)
    one: Stage = stage(tmp_path, tmp_path)
    outcome = smoke._climbed(one, smoke.RUNGS[0], interpreter())
    assert (outcome.code, outcome.cause) == ("SMOKE112", cause)


@pytest.mark.parametrize("number", [4, 5])
def test_model_rungs_are_skipped_without_a_model(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke.tiny, "make", lambda *_, **__: Unknown("no tokenizers here"))
    one: Stage = stage(tmp_path, tmp_path)
    outcome = smoke._climbed(one, smoke.RUNGS[number - 1], interpreter())
    assert (outcome.code, outcome.cause) == ("SMOKE112", "no tokenizers here")


@pytest.mark.parametrize(
    ("message", "expected"),
    [('verl-doctor kernel {"right": true}\n', {"right": True}), ('verl-doctor kernel {"rig', {}), ("{}", {})],
)
def test_partial_output_of_a_stopped_kernel_is_ignored(
    message: str, expected: dict[str, object], tmp_path: Path
) -> None:
    log = tmp_path / "kernel.log"
    log.write_text(message)
    assert devices._answer(Ran(None, log, 1.0, "it did not finish within 1 s")) == expected

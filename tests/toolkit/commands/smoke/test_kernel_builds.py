"""Compilers among the processes of a trial are detected, timed, and named with their kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.smoke.child import Ran
from verl_doctor.toolkit.commands.smoke.failure import failed
from verl_doctor.toolkit.commands.smoke.kernel_builds import Builds, KernelBuilds
from verl_doctor.toolkit.machine import Machine

NVCC = "/usr/local/cuda/bin/nvcc -c /env/flashinfer/data/csrc/sampling.cu -o /home/me/.cache/flashinfer/0.6.12/90a/cached_ops/sampling/sampling.cuda.o"
STARTED = 4711  # clock ticks


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def process(root: Path, pid: int, command: str) -> tuple[int, int]:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{pid} (x) S 1 {'0 ' * 17}{STARTED} 0")
    (folder / "status").write_text("Uid:\t0\t0\t0\t0\n")
    (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    return pid, STARTED


def test_compile_time_is_counted_and_the_kernel_named(tmp_path: Path) -> None:
    clock = Clock()
    builds = KernelBuilds(Machine(root=tmp_path), clock)
    python, nvcc = process(tmp_path, 7, "python -c x"), process(tmp_path, 8, NVCC)
    for now, seen in ((0.0, [python]), (10.0, [python, nvcc]), (25.0, [nvcc]), (30.0, [python]), (99.0, [])):
        clock.now = now
        builds.look(seen)
        if now == 25.0:
            assert builds.found == Builds(15.0, ("sampling",), going_on=True)
    assert builds.found == Builds(20.0, ("sampling",))


@pytest.mark.parametrize("command", ["python nvcc", "/usr/bin/ptxas -o x", "gcc -c x.c", ""])
def test_other_commands_are_not_kernel_compilers(command: str, tmp_path: Path) -> None:
    builds = KernelBuilds(Machine(root=tmp_path))
    builds.look([process(tmp_path, 8, command)])
    assert builds.found is None


def test_reused_process_number_is_not_a_compiler(tmp_path: Path) -> None:
    builds = KernelBuilds(Machine(root=tmp_path))
    pid, started = process(tmp_path, 8, NVCC)
    builds.look([(pid, started - 1)])
    assert builds.found is None


def ran(folder: Path, builds: Builds) -> Ran:
    log = folder / "vllm.log"
    log.write_text("")
    return Ran(
        None, log, 900.0, "it did not finish within 900 s", ({"begun": "load the model"},), builds, "time"
    )


def test_timeout_during_compilation_names_the_compiler_and_a_remedy(tmp_path: Path) -> None:
    outcome = failed(ran(tmp_path, Builds(870.0, ("sampling",), going_on=True)), {"": "SMOKE108"})
    assert outcome.cause == (
        "load the model: it did not finish within 900 s: nvcc had been compiling FlashInfer's kernel sampling for 870 s"
    )
    assert "verl-doctor warmup --engine" in outcome.remedy
    assert "VLLM_USE_FLASHINFER_SAMPLER=0" in outcome.remedy
    assert "flashinfer" not in Builds(9.0, going_on=True).remedy.lower()


def test_finished_compilation_is_not_blamed_for_a_timeout(tmp_path: Path) -> None:
    outcome = failed(ran(tmp_path, Builds(30.0, ("sampling",))), {"": "SMOKE108"})
    assert outcome.cause == "load the model: it did not finish within 900 s"
    assert outcome.remedy == ""

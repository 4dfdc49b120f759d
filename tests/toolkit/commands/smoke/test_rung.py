"""Children of a rung run as the job would, with a private place for everything they write."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from support.trying import LIMITS

from verl_doctor.toolkit.commands.smoke.rung import Stage
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

SHOW = "import os; print(*(os.environ.get(name, '-') for name in {names!r}), sep='\\n')"


def stage(folder: Path, **options: object) -> Stage:
    python = Path(sys.executable)
    return Stage(
        machine=Machine(),
        target=Target(python, "--python"),
        facts=Collection((), {}),
        python=sys.executable,
        environ={"RAY_ADDRESS": "10.0.0.1:6379", "VLLM_USE_V1": "1", "HOME": "/home/me"},
        folder=folder,
        logs=folder / "logs",
        device="cpu",
        **options,  # type: ignore[arg-type]
    )


def seen(one: Stage, *names: str, **options: object) -> list[str]:
    ran = one.run([sys.executable, "-c", SHOW.format(names=names)], **options)  # type: ignore[arg-type]
    return ran.text.splitlines()


def test_child_has_the_variables_of_the_job_and_a_private_home_and_ray(tmp_path: Path) -> None:
    assert seen(stage(tmp_path), "VLLM_USE_V1", "RAY_ADDRESS", "HOME", "RAY_TMPDIR") == [
        "1",
        "-",
        f"{tmp_path}/home",
        str(tmp_path),
    ]


def test_rung_sets_and_unsets_variables(tmp_path: Path) -> None:
    changed = {"VLLM_USE_V1": None, "OMP_NUM_THREADS": "1"}
    assert seen(stage(tmp_path), "VLLM_USE_V1", "OMP_NUM_THREADS", variables=changed) == ["-", "1"]


@pytest.mark.slow
def test_each_child_has_a_separate_log(tmp_path: Path) -> None:
    one = stage(tmp_path)
    logs = [one.run([sys.executable, "-c", f"print({word!r})"], name="import").log for word in ("a", "b")]
    assert [(log.name, log.read_text()) for log in logs] == [("import.log", "a\n"), ("import-2.log", "b\n")]


@pytest.mark.slow
def test_child_gets_only_the_remaining_time_of_the_rung(tmp_path: Path) -> None:
    late = stage(tmp_path, begun=time.monotonic() - 100, budget=100.0)
    ran = late.run([sys.executable, "-c", "import time; time.sleep(60)"])
    assert (ran.code, ran.why_ended) == (None, "it did not finish within 1 s")


@pytest.mark.slow
def test_running_step_and_compilations_are_reported(tmp_path: Path) -> None:
    """A Python process named nvcc represents the compiler."""
    nvcc = [
        "/cuda/bin/nvcc",
        "-c",
        "import time; time.sleep(600)",
        "/x/cached_ops/sampling/sampling.o",
    ]
    works = f"""
import json, os, subprocess, sys
open(os.environ["VERL_DOCTOR_TOLD"], "w").write(json.dumps({{"begun": "load the model"}}) + chr(10))
subprocess.run({nvcc!r}, executable=sys.executable)
"""
    said: list[str] = []
    for limit in LIMITS:
        ran = stage(tmp_path, show=said.append).run([sys.executable, "-c", works], limit=limit)
        if "nvcc" in ran.ending:
            break
    assert said[-1] == "load the model, nvcc compiles FlashInfer's kernel sampling"
    assert ran.ending.startswith(
        f"it did not finish within {limit:.0f} s: nvcc had been compiling FlashInfer's kernel sampling"
    )

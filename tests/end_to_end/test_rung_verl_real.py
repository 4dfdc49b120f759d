"""A step of the released verl on processors: weights move, nothing is left, and a fault in a user's job gets its cause."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import rehearsal_environment
from support.kept import CACHE
from verdict.build import Builder
from verdict.case import cases

pytestmark = [pytest.mark.thorough, pytest.mark.real, pytest.mark.slow(seconds=200)]

_WHOSE = "WHOSE_TEST"  # in the environment of all that a test starts


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> Path:
    """The sources of the environment are read once for all tests: 25 seconds of a processor each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return shared_cache


def doctor(folder: Path, *words: str) -> str:
    """Run the doctor as a user would, on the environment that runs verl without a GPU."""
    command = [
        sys.executable,
        "-m",
        "verl_doctor.toolkit",
        *words,
        "--python",
        str(rehearsal_environment.python()),
    ]
    environ = {**os.environ, **rehearsal_environment.variables(), _WHOSE: str(folder)}
    # vLLM describes each class of models in a process of its own, which imports everything, and keeps what it found.
    environ["VLLM_CACHE_ROOT"] = str(CACHE / "vllm")
    environ.pop("RAY_TMPDIR", None)  # a test's is too long for Ray's sockets, which would be found
    done = subprocess.run(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=False, timeout=900
    )
    return done.stdout


def rung(folder: Path, *words: str) -> dict[str, Any]:
    """Result of the last rung."""
    document = json.loads(doctor(folder, "smoke", "--cpu", "--rung", "5", "--format", "json", *words))
    (only,) = document["rungs"]
    return dict(only)


def still_there(folder: Path) -> list[str]:
    """Processes left by the doctor in this folder or its children: a killed process takes a moment to disappear."""
    deadline = time.monotonic() + 60
    while (found := running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def running(folder: Path) -> list[str]:
    """The processes with the mark of this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_WHOSE) == str(folder):
                found.append(" ".join(process.cmdline()))
    return found


def test_cpu_step_moves_weights_into_the_rollout(tmp_path: Path) -> None:
    found = rung(tmp_path)
    assert found["status"] == "passed", found
    moved, arrived, *_ = found["notes"]
    assert moved.startswith("27 of 27 tensors moved (actor/grad_norm ")
    assert "in the rollout bit for bit" in arrived
    names = [step["name"] for step in found["steps"]]
    assert names[:2] == ["imports", "Ray"]
    assert {"generation and log probabilities", "update", "weight sync"} <= set(names)
    assert still_there(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_scoreboard_case_is_rehearsed(tmp_path: Path) -> None:
    """Its data lack the column: the job really died of that."""
    script = Builder(tmp_path, rehearsal_environment.python()).build(cases()["no_prompt_col"])
    found = rung(script.parent, "--script", "run.sh")
    assert (found["status"], found["code"]) == ("failed", "SMOKE151")
    assert "train.parquet has no column prompt: it has " in found["cause"]

"""A step of the released verl on processors: weights move, nothing is left, and faults planted in a user's job get their cause."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import rehearsal_environment
from verdict.build import Builder
from verdict.case import cases

from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.sources import sources_of

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=400)]

SCRIPT = """\
set -x
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  data.train_files=data/train.parquet data.val_files=data/train.parquet data.train_batch_size=512 \\
  actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \\
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16 \\
  reward.custom_reward_function.path=mine.py reward.custom_reward_function.name=score \\
  trainer.n_gpus_per_node=8 trainer.experiment_name=run-$(date +%s)
"""
RAISES = """\
def score(data_source, solution_str, ground_truth, extra_info=None):
    return float(extra_info["points"])
"""

_WHOSE = "WHOSE_TEST"  # in the environment of all that a test starts


def doctor(folder: Path, *words: str) -> str:
    """Run the doctor where a user stands, about the environment in which verl runs without a GPU."""
    command = [
        sys.executable,
        "-m",
        "verl_doctor.toolkit",
        *words,
        "--python",
        str(rehearsal_environment.python()),
    ]
    environ = {**os.environ, **rehearsal_environment.variables(), _WHOSE: str(folder)}
    environ.pop("RAY_TMPDIR", None)  # a test's is too long for Ray's sockets, which would be found
    done = subprocess.run(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=False, timeout=900
    )
    return done.stdout


def rung(folder: Path, *words: str) -> dict[str, Any]:
    """What the last rung says."""
    said = json.loads(doctor(folder, "smoke", "--cpu", "--rung", "5", "--format", "json", *words))
    (only,) = said["rungs"]
    return dict(only)


def still_there(folder: Path) -> list[str]:
    """The processes that the doctor in this folder, or what it started, has left: what is killed takes a moment to go."""
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


def test_a_step_on_processors_moves_weights_and_the_rollout_gets_them(tmp_path: Path) -> None:
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of tiny data and a tiny model, made once: read it only."""
    folder = tmp_path_factory.mktemp("tiny")
    doctor(folder, "tiny", "made")
    return folder / "made"


@pytest.fixture
def job(tmp_path: Path, made: Path) -> Path:
    """The folder in which a user stands, with data and a reward that raises."""
    (tmp_path / "data").mkdir()
    shutil.copy(made / "train.parquet", tmp_path / "data")
    (tmp_path / "mine.py").write_text(RAISES)
    return tmp_path


def test_a_reward_that_raises_is_the_first_cause(job: Path) -> None:
    (job / "run.sh").write_text(SCRIPT)
    found = rung(job, "--script", "run.sh")
    assert (found["status"], found["code"]) == ("failed", "SMOKE156")
    assert found["cause"].startswith("KeyError: 'points'"), found
    assert any("mine.py" in line for line in found["lines"])
    notes = "\n".join(found["notes"])
    assert "replaced actor_rollout_ref.model.path: Qwen/Qwen3-8B -> " in notes
    assert "replaced trainer.n_gpus_per_node: 8 -> 1" in notes
    assert "left out trainer.experiment_name" in notes
    start = diagnose(sources_of([found["log"]])).timeline
    began = {worker.kind: [one.phase for one in worker.spans] for worker in start.workers}
    assert "start" in began["TaskRunnerV1"]
    assert "start" in began["WorkerDict"]
    assert "start" in began["vLLMHttpServer"]
    assert [one.what for one in start.moments] == ["Ray is up"]
    assert start.seconds is not None
    assert 0.2 * found["seconds"] < start.seconds < found["seconds"]


def test_a_case_of_the_scoreboard_is_rehearsed(tmp_path: Path) -> None:
    """Its data lack the column: the job really died of that."""
    script = Builder(tmp_path, rehearsal_environment.python()).build(cases()["no_prompt_col"])
    found = rung(script.parent, "--script", "run.sh")
    assert (found["status"], found["code"]) == ("failed", "SMOKE151")
    assert "train.parquet has no column prompt: it has " in found["cause"]

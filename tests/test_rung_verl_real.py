"""A step of the released verl on processors: weights move, nothing is left, and faults planted in a user's job get their cause."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_head
import rehearsal_environment

from verl_doctor.toolkit import rung_verl, tiny
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.smoke_rung import Outcome, Stage
from verl_doctor.toolkit.target import Options

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCRIPT = """\
set -x
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  data.train_files=data/train.parquet data.val_files=data/train.parquet data.train_batch_size=512 \\
  actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
  reward.custom_reward_function.path=mine.py reward.custom_reward_function.name=score \\
  trainer.n_gpus_per_node=8 trainer.experiment_name=run-$(date +%s) {more}
"""
RAISES = """\
def score(data_source, solution_str, ground_truth, extra_info=None):
    return float(extra_info["points"])
"""


@contextlib.contextmanager
def private() -> Iterator[Path]:
    """A folder with a short path, as sockets of Ray lie in it."""
    with tempfile.TemporaryDirectory(prefix="vd-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def climb(folder: Path, own: Path, *launch: str) -> Outcome:
    """Climb rung 5 from `folder`, where the user stands."""
    python = rehearsal_environment.python()
    session = open_session(Options(python=python, launch=launch))
    look = session.look()
    interpreter = look.get(Interpreter)
    assert not isinstance(interpreter, Unknown), interpreter
    files = tiny.make(session.machine, interpreter, own / "tiny")
    assert not isinstance(files, Unknown), files
    (folder / "data").mkdir()
    (folder / "data/train.parquet").write_bytes(files.train.read_bytes())
    stage = Stage(
        session.machine,
        session.target,
        look,
        str(python),
        {**session.machine.environ, **rehearsal_environment.variables()},
        own,
        folder / "logs",
        "cpu",
        files.model,
        files.train,
        files.validation,
    )
    return rung_verl.climb(stage)


def test_a_step_on_processors_moves_weights_and_the_rollout_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with private() as own:
        outcome = climb(tmp_path, own)
        assert outcome.status == "passed", outcome
        assert [*ray_head.below(own)] == []
    moved, arrived, *_ = outcome.notes
    assert moved.startswith("27 of 27 tensors moved (actor/grad_norm ")
    assert "bit for bit" in arrived
    names = [step.name for step in outcome.steps]
    assert names[:2] == ["imports", "Ray"]
    assert {"generation and log probabilities", "update", "weight sync"} <= set(names)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "logs"}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The folder in which a user stands, with a script and a reward that raises; and a private one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RAISES)
    with private() as own:
        yield tmp_path, own


def test_a_reward_that_raises_is_the_first_cause(job: tuple[Path, Path]) -> None:
    (job[0] / "run.sh").write_text(SCRIPT.format(more=""))
    outcome = climb(*job, "run.sh")
    assert outcome.status == "failed"
    assert outcome.cause.startswith("KeyError: 'points'"), outcome
    assert any("mine.py" in line for line in outcome.lines)
    notes = "\n".join(outcome.notes)
    assert "replaced actor_rollout_ref.model.path: Qwen/Qwen3-8B -> " in notes
    assert "replaced trainer.n_gpus_per_node: 8 -> 1" in notes
    assert "left out trainer.experiment_name" in notes


def test_a_column_that_the_data_lack_is_the_first_cause(job: tuple[Path, Path]) -> None:
    (job[0] / "run.sh").write_text(SCRIPT.format(more="data.prompt_key=question"))
    outcome = climb(*job, "run.sh")
    assert outcome.code == "SMOKE151"
    assert "data/train.parquet has no column question: it has " in outcome.cause

"""What the name of a program reveals about a job."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.probes.construction.job import Job


@pytest.mark.parametrize(
    ("module", "has_runner"),
    [
        ("verl.trainer.main_ppo", True),
        ("/env/verl/trainer/main_ppo.py", True),
        ("recipe.dapo.main_dapo", True),
        ("verl.trainer.main_generation_server", False),
        ("/env/verl/trainer/main_eval.py", False),
        ("/home/joe/train.py", False),
        ("/home/joe/verl/train.py", False),
        ("own.main_ppo", False),
    ],
)
def test_task_runner_of_verl(module: str, has_runner: bool) -> None:
    assert Job(module, "/job", "/tmp", "/conf", "main", []).has_runner is has_runner

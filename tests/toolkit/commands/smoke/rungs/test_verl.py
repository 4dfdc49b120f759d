from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.commands.smoke.child import End, Ran
from verl_doctor.toolkit.commands.smoke.rehearsal.job import Job
from verl_doctor.toolkit.commands.smoke.rehearsal.overrides import Replaced, Words
from verl_doctor.toolkit.commands.smoke.rehearsal.watch import Watcher
from verl_doctor.toolkit.commands.smoke.rehearsal.weights import Weights, describe_weights, weights_wrong
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Step
from verl_doctor.toolkit.commands.smoke.rungs.verl import judged, steps_of

REPLACED = (
    Replaced("trainer.device", "cuda", "cpu", "device", from_script=False),
    Replaced("trainer.n_gpus_per_node", 8, 1, "device: there is one", from_script=True),
)
STEP = "(TaskRunnerV1 pid=9) step:1 - actor/grad_norm:2.5 - critic/score/max:0.8 - critic/score/min:0.1\n"
TRACE = """(RewardLoopWorker pid=7) Traceback (most recent call last):
(RewardLoopWorker pid=7)   File "/data/mine/reward.py", line 2, in score
(RewardLoopWorker pid=7)     return float(extra_info["answer"])
(RewardLoopWorker pid=7) KeyError: 'answer'
"""


def witnessed(after: str = "xy", received: str = "x") -> tuple[dict[str, Any], ...]:
    return tuple(
        {"event": name, "at": at, "exact": list(tensors), "seen": list(tensors)}
        for name, at, tensors in (
            ("before update", 140.0, "ab"),
            ("after update", 150.0, after),
            ("rollout weights", 160.0, received),
        )
    )


def judgement(
    folder: Path, text: str, code: int | None, *, end: End | None = None, own: bool = True, **events: str
) -> Outcome:
    log = folder / "verl.log"
    log.write_text(text)
    job = Job((), {}, Words((), REPLACED, ("trainer.name=$(date)",)), own)
    kind, why = end or ("", "")
    ran = Ran(code, log, 70.0, why, witnessed(**events), ended_for=kind)
    watcher = Watcher(lambda: None)
    watcher(text + "\n")
    return judged(job, ran, watcher, begun=100.0)


def test_step_that_moved_weights_passes(tmp_path: Path) -> None:
    outcome = judgement(tmp_path, STEP, 0)
    assert outcome.status == "passed"
    assert outcome.notes[:2] == (
        "2 of 2 tensors moved (actor/grad_norm 2.5)",
        "2 of them differ in bfloat16, and 1 of these are in the rollout bit for bit: vLLM joins others into one",
    )


def test_replaced_and_dropped_settings_are_listed(tmp_path: Path) -> None:
    notes = "\n".join(judgement(tmp_path, STEP, 0).notes)
    assert "replaced trainer.n_gpus_per_node: 8 -> 1 (device: there is one)" in notes
    assert "trainer.device" not in notes
    assert "left out trainer.name=$(date)" in notes


@pytest.mark.parametrize(
    ("reached", "phase"),
    [
        ("", "composition"),
        ("Started a local Ray instance\n(TaskRunnerV1 pid=9) verl\n", "workers"),
        (
            (
                "Started a local Ray instance\n(TaskRunnerV1 pid=9) Total training steps: 1\n"
                "(WorkerDict pid=8) x\n(TaskRunnerV1 pid=9) actor and ref model engine initialized\n"
            ),
            "engine",
        ),
    ],
)
def test_phase_follows_from_the_running_part(tmp_path: Path, reached: str, phase: str) -> None:
    assert judgement(tmp_path, reached + TRACE, 1).phase == phase


def test_step_that_moved_nothing_fails(tmp_path: Path) -> None:
    outcome = judgement(tmp_path, STEP, 0, after="ab")
    assert (outcome.status, outcome.code) == ("failed", "SMOKE157")


def test_step_with_equal_user_rewards_that_moved_nothing_is_a_hint(tmp_path: Path) -> None:
    equal = STEP.replace("0.1", "0.8").replace("2.5", "0.0")
    outcome = judgement(tmp_path, equal, 0, own=False, after="ab")
    assert outcome.status == "passed"
    assert "all answers got the same reward" in outcome.notes[0]


def test_weights_missing_from_the_rollout_are_a_failure(tmp_path: Path) -> None:
    assert judgement(tmp_path, STEP, 0, received="ab").code == "SMOKE158"


def test_first_cause_and_part_are_reported(tmp_path: Path) -> None:
    outcome = judgement(tmp_path, TRACE, 1)
    assert (outcome.status, outcome.code) == ("failed", "SMOKE156")
    assert outcome.cause.startswith("KeyError: 'answer'")
    assert any("reward.py" in line for line in outcome.lines)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (End("no node", "Ray has no node with {'CPU': 3.0}, and waits for one without end"), "SMOKE153"),
        (
            End("no room", "no output for 90 s: Ray cannot start 8 x SimpleStorageUnit (1 CPU)"),
            "SMOKE153",
        ),
        (End("process failed", "a process of the job failed, and there was no output for 46 s"), "SMOKE154"),
        (End("no answer from Ray", "the Ray cluster that it tried to join does not respond"), "SMOKE155"),
        (End("time", "it did not finish within 600 s"), "SMOKE111"),
    ],
)
def test_stopped_run_reports_the_reason(tmp_path: Path, end: End, code: str) -> None:
    outcome = judgement(tmp_path, "ray init kwargs\n", None, end=end)
    assert outcome.code == code
    assert end.sentence in outcome.cause


def test_trainer_without_samples_is_not_the_first_cause(tmp_path: Path) -> None:
    nothing = "Sync replay buffer selected terminal groups with no materializable trajectories."
    dashboard = "Traceback (most recent call last):\nRuntimeError: Module MetricsHead failed to start. Received EOF from pipe.\n"
    text = f"{dashboard}{TRACE}Error executing job with overrides: ['a=1']\nTraceback (most recent call last):\nRuntimeError: {nothing}\n"
    assert judgement(tmp_path, text, 1).cause.startswith("KeyError: 'answer'")


def test_failed_prompts_of_a_completed_step_are_reported(tmp_path: Path) -> None:
    text = f"(A pid=3) ERROR: Error in _run_prompt for uid=9acad06c\n{TRACE}{STEP}"
    outcome = judgement(tmp_path, text, 0)
    assert outcome.status == "passed"
    assert "1 prompt failed, and verl went on without: KeyError: 'answer'" in outcome.notes


def test_exit_without_output_is_reported_with_its_status(tmp_path: Path) -> None:
    assert "status -9" in judgement(tmp_path, "", -9).cause


def test_parts_of_the_step_come_from_the_witness() -> None:
    read = (Step("imports", 10.0), Step("first weights", 20.0), Step("step", 40.0))
    found = steps_of(read, witnessed(), begun=100.0, seconds=70.0)
    assert [(step.name, step.seconds) for step in found] == [
        ("imports", 10.0),
        ("first weights", 20.0),
        ("generation and log probabilities", 10.0),
        ("update", 10.0),
        ("weight sync", 10.0),
        ("end", 10.0),
    ]


def test_run_without_a_witness_passes_without_proof() -> None:
    assert weights_wrong(None, own_reward=False) is None
    assert describe_weights(None, {"actor/grad_norm": 1.0}) == [
        "whether the weights moved could not be seen (actor/grad_norm 1)"
    ]


def test_warmup_with_an_empty_cache_is_reported() -> None:
    notes = describe_weights(Weights(9, 0, 0, 0), {"actor/lr": 0.0, "actor/grad_norm": 1.0})
    assert notes == [
        "the weights did not move (actor/grad_norm 1): the learning rate of the first step is 0, as a warm-up begins"
    ]


def test_change_too_small_for_the_rollout_is_reported() -> None:
    assert "too small" in describe_weights(Weights(9, 9, 0, 0), {})[1]

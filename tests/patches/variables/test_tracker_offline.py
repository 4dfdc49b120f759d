"""Letting a tracker keep its runs on this machine."""

from __future__ import annotations

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.variables.tracker_without_key import tracker_without_key
from verl_doctor.patches.variables.tracker_offline import tracker_offline
from verl_doctor.toolkit.change import SetVariable
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.trackers import Tracker, Trackers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

BOTH = Trackers(
    (
        Tracker("wandb", True, looked_at=("WANDB_API_KEY",)),
        Tracker("swanlab", True, looked_at=("SWANLAB_API_KEY",)),
    )
)
NOT_ASKED = (EffectiveEnvironment, Unknown("not asked"))


def test_only_the_named_tracker_is_set_offline() -> None:
    job = configured("trainer.logger=[console,swanlab]")
    (finding,) = run_check(tracker_without_key, *job, BOTH, NOT_ASKED).findings
    plan = tracker_offline.plan(finding, BOTH)
    assert isinstance(plan, list)
    assert [(change.name, change.value) for change in plan if isinstance(change, SetVariable)] == [
        ("SWANLAB_MODE", "offline")
    ]


def test_key_in_the_environment_of_running_workers_counts() -> None:
    secret = (Value(undetermined="it may be a secret", present=True),)
    row = Effective("WANDB_API_KEY", Value(), secret, secret, "the raylet")
    assert run_check(tracker_without_key, *configured(), BOTH, EffectiveEnvironment((row,))).findings == ()

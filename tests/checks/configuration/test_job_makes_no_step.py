"""CFG132: a job that validates first by verl's default trains nothing, but does not fail."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.configuration.job_makes_no_step import job_makes_no_step
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.testing import run_check


def test_validation_by_default_makes_it_a_warning() -> None:
    (configuration, *others) = configured("++trainer.total_epochs=0")
    assert isinstance(configuration, Configuration)
    trainer = {**configuration.after["trainer"], "val_before_train": True}
    by_default = replace(configuration, after={**configuration.after, "trainer": trainer})
    (finding,) = run_check(job_makes_no_step, by_default, *others).findings
    assert (finding.severity, finding.stops) == ("warning", ())


def test_job_without_steps_ends_after_its_start_and_not_at_a_batch_that_it_never_makes() -> None:
    (finding,) = run_check(job_makes_no_step, *configured("++trainer.total_epochs=0")).findings
    assert finding.message == (
        "the job starts, trains nothing and ends as if it had succeeded: trainer.total_epochs is 0"
    )
    assert finding.phase == "start"
    (finding,) = run_check(job_makes_no_step, *configured("actor_rollout_ref.rollout.n=0")).findings
    assert finding.phase == "first batch"

"""CFG135: whether a validation without a table is certain."""

from __future__ import annotations

import pytest

from verl_doctor.checks.configuration.step_interval_unusable import step_interval_unusable
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.step_intervals import StepIntervals
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(
    ("every", "steps", "is_certain"),
    [
        ("1", "3", True),
        ("2", "3", True),
        ("2", "null", False),
        ("after_each_epoch", "null", True),
        ("after_each_epoch", "3", False),  # the first epoch may have more
    ],
)
def test_validation_that_the_job_may_not_reach_is_a_warning(every: str, steps: str, is_certain: bool) -> None:
    tree = {
        "trainer": {"test_freq": -1, "save_freq": -1, "total_training_steps": None},
        "data": {"val_files": None},
    }
    facts = configured(f"trainer.test_freq={every}", f"trainer.total_training_steps={steps}", tree=tree)
    intervals = StepIntervals("/env/verl/trainer/sft_trainer.py", needs_table=True)
    (finding,) = run_check(step_interval_unusable, *facts, intervals).findings
    assert (finding.severity != "warning") is is_certain

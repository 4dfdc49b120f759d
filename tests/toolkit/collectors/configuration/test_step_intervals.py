"""The settings by which fine-tuning programs divide the number of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.step_intervals import StepIntervals, step_intervals
from verl_doctor.toolkit.facts import Absent

NEW = """
self.val_dataloader = None
is_valid_step = global_step % self.test_freq == 0
if is_last_step and self.val_dataloader is not None or (self.test_freq > 0 and is_valid_step):
    pass
"""


@pytest.mark.parametrize(
    ("source", "divides", "needs_table"),
    [
        (NEW, ("trainer.test_freq",), True),
        ("a = step % self.config.trainer.save_freq == 0\n", ("trainer.save_freq",), False),
        ("if self.save_freq > 0 and step % self.save_freq == 0:\n    pass\n", (), False),
        ("# step % self.save_freq\n", (), False),
    ],
)
def test_divisions_are_read_from_the_program(
    source: str, divides: tuple[str, ...], needs_table: bool, tmp_path: Path
) -> None:
    program = tmp_path / "sft_trainer.py"
    program.write_text(source)
    found = step_intervals.collect(Configuration(str(program), "", "sft"))
    assert found == StepIntervals(str(program), divides, needs_table)


def test_other_jobs_are_not_read() -> None:
    assert isinstance(step_intervals.collect(configured()[0]), Absent)

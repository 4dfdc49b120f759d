"""SMOKE151: a data file of the launch script does not exist or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE151", 5, "a step of verl", "the data file /data/train.parquet does not exist")


@check("SMOKE151", phase="workers", cost="slow", examples=_examples)
def rehearsal_data_cannot_be_read(run: SmokeRun) -> Iterator[Finding]:
    """A data file of the launch script does not exist or cannot be read.

    ## Why it matters

    The trainer opens its data after the imports and after Ray has started, on whatever node its driver runs:
    a path that is right on one machine and wrong on another is noticed only there.

    ## How to fix

    Use files that every node can read (`data.train_files`, `data.val_files`). Recreate a damaged file.
    """
    yield from broken_by("SMOKE151", run)

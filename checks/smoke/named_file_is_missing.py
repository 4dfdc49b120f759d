"""SMOKE103: a model or data file that the job is to read is missing or damaged."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of("SMOKE103", 1, "imports and files", "/data/train.parquet (--data): missing")


@check("SMOKE103", phase="workers", cost="slow", examples=_examples)
def named_file_is_missing(run: SmokeRun) -> Iterator[Finding]:
    """A model or data file that the job reads is missing or damaged.

    ## Why it matters

    The job would fail only after Ray and its workers have started, for a model only when the weights are
    loaded.

    ## How to fix

    Pass existing files with `--model` and `--data` or in the launch script. Replace Git LFS pointers by
    running `git lfs pull`; download truncated files again.
    """
    yield from broken_by("SMOKE103", run)

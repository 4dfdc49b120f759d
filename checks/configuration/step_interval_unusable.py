"""CFG135: a fine-tuning job validates or saves at an interval that it cannot use."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.step_intervals import StepIntervals
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Phase, Severity, Subject, check

_TEST, _SAVE, _TABLE = "trainer.test_freq", "trainer.save_freq", "data.val_files"
_STEPS = "trainer.total_training_steps"
_AFTER_EPOCHS = "after_each_epoch"
_TREE = {
    "trainer": {"test_freq": -1, "save_freq": -1, "total_training_steps": None},
    "data": {"val_files": None},
}
_PROGRAM = StepIntervals(path="/env/verl/trainer/sft_trainer.py", divides=(_TEST, _SAVE), needs_table=True)


def _examples() -> list[Example]:
    return [
        Example("verl's defaults", (*configured(tree=_TREE), _PROGRAM)),
        Example(
            "a validation table",
            (*configured(f"{_TEST}=1", f"{_TABLE}=/data/test.parquet", tree=_TREE), _PROGRAM),
        ),
        Example(
            "fewer steps than the interval",
            (*configured(f"{_TEST}=100", f"{_STEPS}=10", tree=_TREE), _PROGRAM),
        ),
        Example(
            "a release that does not divide",
            (*configured(f"{_SAVE}=0", tree=_TREE), StepIntervals("/env/verl/trainer/sft_trainer.py")),
        ),
        Example("an unknown interval", (*configured(f"{_TEST}=${{oc.env:N}}", tree=_TREE), _PROGRAM)),
        Example(
            "never save, as 0",
            (*configured(f"{_SAVE}=0", tree=_TREE), _PROGRAM),
            "trainer.save_freq is 0: the job divides by it after each step",
        ),
        Example(
            "never validate, as null",
            (*configured(f"{_TEST}=null", tree=_TREE), _PROGRAM),
            "trainer.test_freq is null",
        ),
        Example(
            "a validation without a table",
            (*configured(f"{_TEST}=1", tree=_TREE), _PROGRAM),
            "the job validates after every step, but data.val_files is null",
        ),
        Example(
            "a validation after many steps",
            (*configured(f"{_TEST}=100", tree=_TREE), _PROGRAM),
            "the job validates after every 100 steps, but data.val_files is null",
        ),
        Example(
            "a validation after each epoch",
            (*configured(f"{_TEST}={_AFTER_EPOCHS}", tree=_TREE), _PROGRAM),
            "after each epoch, but data.val_files is null",
        ),
    ]


@check("CFG135", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def step_interval_unusable(configuration: Configuration, intervals: StepIntervals) -> Iterator[Finding]:
    """A fine-tuning job validates or saves at an interval that it cannot use.

    ## Why it matters
    The SFT trainer divides the number of each step by `trainer.test_freq` and `trainer.save_freq`, so that 0
    and null end the job after its first step. It validates at `trainer.test_freq` even if there is no
    validation table, and fails there.

    ## How to fix
    `-1` switches either off. To validate, name a table in `data.val_files`.
    """
    for key in intervals.divides:
        value = configuration.get(key)
        if value is None or (value == 0 and isinstance(value, (bool, int, float))):
            shown = "null" if value is None else value
            message = f"{key} is {shown}: the job divides by it after each step; -1 switches it off"
            yield _finding(configuration, intervals, key, message, "first batch")
    every = configuration.get(_TEST)
    validates = every == _AFTER_EPOCHS or (type(every) is int and every > 0)
    if not intervals.needs_table or not validates or configuration.get(_TABLE) is not None:
        return
    when = (
        "after each epoch"
        if every == _AFTER_EPOCHS
        else f"after every {every} steps"
        if every != 1
        else "after every step"
    )
    steps = configuration.number(_STEPS)
    if steps is not None and type(every) is int and steps < every:
        return
    certain = configuration.get(_STEPS) is None if every == _AFTER_EPOCHS else every == 1 or steps is not None
    message = f"the job validates {when}, but {_TABLE} is null"
    yield _finding(configuration, intervals, _TEST, message, "first batch", None if certain else "warning")


def _finding(
    configuration: Configuration,
    intervals: StepIntervals,
    key: str,
    message: str,
    phase: Phase,
    severity: Severity | None = None,
) -> Finding:
    word = configuration.override_of(key)
    return Finding(
        message,
        Evidence(
            found=word.text if word else f"{key}={configuration.get(key)}",
            wanted=f"{key}=-1",
            read_from=intervals.path,
        ),
        location=place(word) if word else None,
        remedy=f"set {key}=-1",
        subject=Subject("setting", key),
        severity=severity,
        phase=phase,
        stops=() if severity else (EVERY_JOB,),
        **healed("CFG135", settings(configuration, {key: -1})),
    )

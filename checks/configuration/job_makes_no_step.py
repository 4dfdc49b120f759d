"""CFG132: the job ends without a training step."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_STEPS, _EPOCHS = "trainer.total_training_steps", "trainer.total_epochs"
_RESPONSES = "actor_rollout_ref.rollout.n"
_VALIDATES = ("trainer.val_before_train", "trainer.val_only")


@check(
    "CFG132",
    phase="first batch",
    requires=("CFG101", "CFG102", "CFG103", "CFG109"),
    examples=lambda: [
        Example("two epochs", configured(f"++{_EPOCHS}=2", f"++{_STEPS}=null")),
        Example("only validation", configured(f"++{_EPOCHS}=0", "++trainer.val_before_train=True")),
        Example("an unknown number of steps", configured(f"++{_STEPS}=${{oc.env:N}}")),
        Example("steps below zero", configured(f"++{_STEPS}=-1"), "trains nothing: trainer.total_training_steps is -1"),
        Example("no epochs", configured(f"++{_EPOCHS}=0"), "trains nothing: trainer.total_epochs is 0"),
        Example("no responses", configured(f"{_RESPONSES}=0"), "actor_rollout_ref.rollout.n is 0"),
    ],
)  # fmt: skip
def job_makes_no_step(configuration: Configuration) -> Iterator[Finding]:
    """The job ends without a training step.

    ## Why it matters
    Trainers of verl count up to `total_training_steps` and `total_epochs`. If there are none, the job starts Ray, loads the model, starts the engines and ends with exit status 0, as if it had trained. Without a response to a prompt there is nothing to train on, and the first batch fails.

    ## How to fix
    Set a number above zero. `trainer.total_training_steps=null` leaves the number of steps to the data and the epochs.
    """
    rollouts = configuration.has("actor_rollout_ref")
    if any(configuration.get(key) is True for key in _VALIDATES):
        return
    for key in (_STEPS, _EPOCHS, _RESPONSES) if rollouts else (_EPOCHS,):
        value = configuration.number(key)
        word = configuration.override_of(key)
        if value is None or value > 0 or word is None:
            continue
        fate = "generates nothing" if key == _RESPONSES else "trains nothing"
        yield Finding(
            f"the job {fate}: {key} is {value:g}",
            Evidence(found=word.text, wanted="a number above zero"),
            location=place(word),
            remedy=f"set {key} to a number above zero" + (", or to null" if key == _STEPS else ""),
            subject=Subject("setting", key),
            stops=(EVERY_JOB,),
        )
        return

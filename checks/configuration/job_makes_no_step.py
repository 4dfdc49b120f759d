"""CFG132: the job ends without a training step."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import SCRIPT, configured, place
from verl_doctor.checks.shared.corrections import healed, without_value
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Command, Launch, Word
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_STEPS, _EPOCHS = "trainer.total_training_steps", "trainer.total_epochs"
_RESPONSES = "actor_rollout_ref.rollout.n"
_BEFORE, _ONLY = "trainer.val_before_train", "trainer.val_only"

# Seconds. The fastest job measured on an H200 or on 16 cores, of a tiny model, made its first step after 112
# s, or 18 s when it was fine-tuned. `timeout` with less than that is left over from a trial.
_FASTEST, _FASTEST_TUNING = 60, 12

# Options of Hydra with which a program prints something and ends.
_PRINTS = frozenset({"--cfg", "-c", "--info", "--help", "-h", "--hydra-help", "--version"})

_TUNING = {"trainer": {"total_training_steps": None, "total_epochs": 4}}


def _limited(seconds: float, *words: str) -> Launch:
    command = Command(
        module="verl.trainer.main_ppo",
        words=tuple(Word(text=word, path=SCRIPT, line=3) for word in words),
        path=SCRIPT,
        line=3,
        names=("timeout", "python3"),
        ends_after=seconds,
    )
    return Launch(files=((SCRIPT, "shell script"),), settings=(), command=command)


def _examples() -> list[Example]:
    return [
        Example("two epochs", configured(f"++{_EPOCHS}=2", f"++{_STEPS}=null")),
        Example("only validation", configured(f"++{_EPOCHS}=0", f"++{_BEFORE}=True")),
        Example(
            "only validation, in newer releases",
            configured(f"++{_EPOCHS}=0", f"{_RESPONSES}=0", f"++{_ONLY}=True"),
        ),
        Example("an unknown number of steps", configured(f"++{_STEPS}=${{oc.env:N}}")),
        Example(
            "steps below zero",
            configured(f"++{_STEPS}=-1"),
            "trains nothing and ends as if it had succeeded: trainer.total_training_steps is -1",
        ),
        Example(
            "no epochs",
            configured(f"++{_EPOCHS}=0"),
            "trains nothing and ends as if it had succeeded: trainer.total_epochs is 0",
        ),
        Example(
            "fine-tuning without a number of epochs",
            configured("trainer.total_epochs=null", tree=_TUNING),
            "trains nothing and ends as if it had succeeded: trainer.total_epochs is null",
        ),
        Example(
            "no responses",
            configured(f"{_RESPONSES}=0"),
            "nothing to train on: actor_rollout_ref.rollout.n is 0",
        ),
        Example(
            "no responses after a validation",
            configured(f"{_RESPONSES}=0", f"++{_BEFORE}=True"),
            "nothing to train on: actor_rollout_ref.rollout.n is 0",
        ),
        Example("a day for the job", (*configured(), _limited(86400))),
        Example("a minute for the job", (*configured(), _limited(60))),
        Example(
            "half a minute for the job",
            (*configured(), _limited(30)),
            "timeout ends the job after 30 s, before its first step",
        ),
        Example("half a minute to print the configuration", (*configured(), _limited(30, "--cfg", "job"))),
        Example("half a minute for fine-tuning", (*configured(tree=_TUNING), _limited(30))),
    ]


@check(
    "CFG132",
    phase="first batch",
    since="0.2",
    requires=("CFG101", "CFG102", "CFG103", "CFG109"),
    examples=_examples,
)
def job_makes_no_step(configuration: Configuration, launch: Launch | Unknown) -> Iterator[Finding]:
    """The job ends without a training step.

    ## Why it matters
    Trainers of verl count up to `total_training_steps` and `total_epochs`. If there are none, the job starts
    Ray, loads the model, starts the engines and ends with exit status 0, as if it had trained. Without a
    response to a prompt there is nothing to train on, and the first batch fails. `timeout 30` ends the job
    while it starts: the first step of a tiny model on one GPU takes two minutes, or 20 seconds when it is
    fine-tuned. A job that validates first (verl's default) ends after that, which may be intended: then it is
    a warning, and nothing if the script requests the validation.

    ## How to fix
    Set a number above zero. `trainer.total_training_steps=null` leaves the number of steps to the data and
    the epochs.
    """
    rollouts = configuration.has("actor_rollout_ref")
    yield from _ended_early(launch, _FASTEST if rollouts else _FASTEST_TUNING)
    if configuration.get(_ONLY) is True:
        return
    validates = configuration.get(_BEFORE) is True
    for key in (_STEPS, _EPOCHS, _RESPONSES) if rollouts else (_EPOCHS,):
        value = configuration.number(key)
        word = configuration.override_of(key)
        # The SFT trainer counts epochs by range(), whatever the number of steps.
        is_null = key == _EPOCHS and not rollouts and configuration.get(key) is None
        if (value is None and not is_null) or (value is not None and value > 0) or word is None:
            continue
        trains = key != _RESPONSES
        if trains and validates and configuration.override_of(_BEFORE) is not None:
            continue
        only_validates = trains and validates  # by verl's default: the job ends with exit status 0
        begins = "validates once" if only_validates else "starts"
        fate = (
            f"the job {begins}, trains nothing and ends as if it had succeeded"
            if trains
            else "no response to a prompt is generated, so the first batch has nothing to train on"
        )
        yield Finding(
            f"{fate}: {key} is {'null' if value is None else format(value, 'g')}",
            Evidence(found=word.text, wanted="a number above zero"),
            location=place(word),
            remedy=f"set {key} to a number above zero" + (", or to null" if key == _STEPS else ""),
            subject=Subject("setting", key),
            severity="warning" if only_validates else None,
            stops=() if only_validates else (EVERY_JOB,),
            phase="start" if trains else "first batch",
            **healed("CFG132", without_value(configuration, key)),
        )
        return


def _ended_early(launch: Launch | Unknown, fastest: float) -> Iterator[Finding]:
    command = None if isinstance(launch, Unknown) else launch.command
    if command is None or command.conditional or command.ends_after is None or command.ends_after >= fastest:
        return
    if any((word.text or "").partition("=")[0] in _PRINTS for word in command.words):
        return
    yield Finding(
        f"timeout ends the job after {command.ends_after:g} s, before its first step",
        Evidence(found=f"timeout {command.ends_after:g}", wanted="the time that the job needs"),
        location=Location(command.path, command.line),
        remedy="remove timeout, or give the job the time that it needs",
        subject=Subject("limit", "timeout"),
        stops=(EVERY_JOB,),
        phase="workers",
        fix=None if command.path == COMMAND_LINE else "time-limit-removed",
    )

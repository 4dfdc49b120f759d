"""Rung 5: verl's real trainer does one step, and the weights move.

The step includes Ray, data, rollout, reward and weight sync.

On a machine without a GPU verl gets a platform for CPUs through its own extension point (`rehearsal.job`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from verl_doctor.toolkit.commands.smoke.child import EndedFor, Ran
from verl_doctor.toolkit.commands.smoke.failure import HANGS, remedy_of
from verl_doctor.toolkit.commands.smoke.ray import with_the_jobs_path
from verl_doctor.toolkit.commands.smoke.rehearsal.busy import wanted_seconds
from verl_doctor.toolkit.commands.smoke.rehearsal.job import Job, job_of
from verl_doctor.toolkit.commands.smoke.rehearsal.overrides import Replaced
from verl_doctor.toolkit.commands.smoke.rehearsal.refused import Refused
from verl_doctor.toolkit.commands.smoke.rehearsal.waits import waits_in
from verl_doctor.toolkit.commands.smoke.rehearsal.watch import Watcher, plain
from verl_doctor.toolkit.commands.smoke.rehearsal.weights import (
    describe_weights,
    metrics,
    weights,
    weights_wrong,
)
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage, Step
from verl_doctor.toolkit.logs.first_cause import Cause, first_cause

_LIMIT = 1200.0  # seconds; two or three minutes on two idle processors, eight on busy ones
_GOT_NOTHING = "no materializable trajectories"  # verl/trainer/ppo/v1/replay_buffer.py
_DROPPED = re.compile(r"Error in _run_prompt for uid=(\S+)")  # verl/trainer/ppo/v1/agent_loop_tq.py
_OF_HYDRA = "Error executing job with overrides"  # Hydra's line before the exception of the program
_OF_A_HELPER = re.compile(r"\((?!TaskRunner|main_task)\w+ pid=")  # Ray's prefix for the lines of a process
_RAISED = ("SMOKE156", "repair it where the lines show that it was raised")
# The code and the next step for each reason to end a run.
_ENDS: Mapping[EndedFor, tuple[str, str]] = {
    "no node": ("SMOKE153", "give Ray the requested resources, or request less"),
    "no room": (
        "SMOKE153",
        "give Ray the requested resources (ray_kwargs.ray_init.num_cpus), or request less",
    ),
    "process failed": ("SMOKE154", "repair what that process reports: the trainer waits for it without end"),
    "no answer from Ray": ("SMOKE155", "remove the address, or start a Ray there"),
    "time": (HANGS, "see at the end of the log what it did last"),
}
_NO_FAILURE = (
    "SMOKE153",
    "SMOKE155",
)  # a waiting run reports no error: those in the log are unrelated
_LATEST = {
    "generation and log probabilities": "before update",
    "update": "after update",
    "weight sync": "rollout weights",
}


def climb(stage: Stage) -> Outcome:
    """Run one step of verl."""
    try:
        job = job_of(stage)
    except Refused as refused:
        return refused.outcome
    waits = partial(waits_in, stage.machine, stage.python, stage.folder)
    watcher = Watcher(waits, partial(wanted_seconds, machine=stage.machine))

    def look(kin: Collection[tuple[int, int]]) -> None:
        stage.look(kin)
        watcher.look(kin)
        if watcher.part:
            stage.show(watcher.part)

    argv = ["env", f"--chdir={stage.machine.cwd}", *job.argv]
    begun = time.time()
    ran = replace(stage, look=look).run(
        argv, limit=_LIMIT, variables=job.variables, watch=watcher, name="verl"
    )
    watcher(ran.text + "\n")
    outcome = judged(job, ran, watcher, begun)
    return with_the_jobs_path(stage, outcome) if outcome.status == "failed" else outcome


def judged(job: Job, ran: Ran, watcher: Watcher, begun: float) -> Outcome:
    """Return what one run shows."""
    text = plain(ran.text)
    last = watcher.part if ran.code != 0 and watcher.part else "end"
    steps = steps_of(watcher.steps(), ran.documents, begun, ran.seconds, last)
    notes = tuple(notes_of(job))
    if ran.code != 0:
        return _failed(ran, text, watcher, steps, notes)
    moved = weights(ran.documents)
    wrong = weights_wrong(moved, own_reward=job.own_reward)
    if wrong:
        cause, code = wrong
        return Outcome(
            "failed",
            cause,
            "read the log, from 'step:1' upwards",
            code,
            log=ran.log,
            steps=steps,
            notes=notes,
        )
    notes = (*describe_weights(moved, metrics(text)), *dropped(text), *notes)
    return Outcome("passed", log=ran.log, steps=steps, notes=notes)


def _failed(
    ran: Ran, text: str, watcher: Watcher, steps: tuple[Step, ...], notes: tuple[str, ...]
) -> Outcome:
    code, remedy = _ENDS.get(ran.ended_for, _RAISED)
    found = None if code in _NO_FAILURE else cause_in(text)
    words = [found.words if found else "", ran.ending]
    remedy = remedy_of(ran) or remedy
    cause = "; ".join(filter(None, words)) or f"verl ended with status {ran.code}, and gave no reason"
    where = f" (in the part: {watcher.part})" if watcher.part else ""
    lines = found.lines if found else ()
    return Outcome("failed", f"{cause}{where}", remedy, code, lines, ran.log, steps, notes, watcher.phase)


def cause_in(text: str) -> Cause | None:
    """Return the first cause.

    If the trainer only reports that it got nothing from its helpers, an earlier helper's error is the cause.
    """
    found = first_cause(text)
    if found is None or _GOT_NOTHING not in text:
        return found
    before = text[: text.rfind(_OF_HYDRA)].splitlines()
    return first_cause("\n".join(line for line in before if _OF_A_HELPER.match(line))) or found


def dropped(text: str) -> list[str]:
    """Return the prompts that failed and that verl skipped: it trains on the rest."""
    failed = set(_DROPPED.findall(text))
    if not failed:
        return []
    found = first_cause(text)
    why = f": {found.words}" if found else ""
    prompts = "1 prompt" if len(failed) == 1 else f"{len(failed)} prompts"
    return [f"{prompts} failed, and verl went on without{why}"]


def notes_of(job: Job) -> list[str]:
    """Return notes: what the rehearsal replaces in the script, what verl never reads, and what is unknown."""
    notes = [
        (
            f"replaced {replacement.key}: {_short(replacement.old)} -> {_short(replacement.new)} "
            f"({replacement.why})"
        )
        for replacement in replaced_from_script(job.words.replaced)
    ]
    notes += [f"{key} is accepted and never read by this verl" for key in job.unheeded]
    notes += [
        f"left out {word}: its value cannot be determined by reading the script"
        for word in job.words.undetermined
    ]
    return notes


def replaced_from_script(replaced: Sequence[Replaced]) -> list[Replaced]:
    """Return the script's own settings that were replaced."""
    return [replacement for replacement in replaced if replacement.from_script]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:28]}...{text[-28:]}"


def steps_of(
    read: tuple[Step, ...],
    documents: Sequence[Mapping[str, object]],
    begun: float,
    seconds: float,
    last: str = "end",
) -> tuple[Step, ...]:
    """Return the parts of the run.

    They come from the log and, within the step, from the witness; `last` lasts until the run ended.
    """
    found = [step for step in read if step.name != "step"]
    at = sum(step.seconds for step in found)
    for name, event in _LATEST.items():
        times = [
            float(str(document["at"])) - begun for document in documents if document.get("event") == event
        ]
        if times and max(times) > at:
            found.append(Step(name, max(times) - at))
            at = max(times)
    if found and seconds > at:
        found.append(Step(last, seconds - at))
    return tuple(found)

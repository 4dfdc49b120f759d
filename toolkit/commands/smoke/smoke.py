"""`verl-doctor smoke`: a ladder of trials, where each rung requires the ones below it."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.commands.smoke import trial_cache
from verl_doctor.toolkit.commands.smoke.device import device_of, own_model
from verl_doctor.toolkit.commands.smoke.environ import smoke_environ, with_own_tree
from verl_doctor.toolkit.commands.smoke.folder import NOTE, private_folder
from verl_doctor.toolkit.commands.smoke.logs import keep, log_folder
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.commands.smoke.traces import Traces
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session, without_verl
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.system.errors import os_error_text
from verl_doctor.toolkit.system.supervised import NotStarted
from verl_doctor.toolkit.target import CannotJudgeError, UsageError
from verl_doctor.toolkit.tiny import tiny
from verl_doctor.toolkit.tiny.tiny import Tiny

BUDGET = 1800.0  # seconds for the whole climb
_CANNOT = "SMOKE112"


@dataclass(frozen=True)
class Rung:
    """One rung: its number from below, its name, and the module that climbs it.

    `needs_model`: it needs a model and data. `starts_job`: it starts verl like the user, in the same folder.
    """

    number: int
    name: str
    module: str
    needs_model: bool = False
    starts_job: bool = False


RUNGS = (
    Rung(1, "imports and files", "imports"),
    Rung(2, "devices", "devices"),
    Rung(3, "Ray", "ray"),
    Rung(4, "vLLM", "vllm", needs_model=True),
    Rung(5, "a step of verl", "verl", needs_model=True, starts_job=True),
)


@dataclass(frozen=True)
class SmokeRequest:
    """What the user requests.

    That is which rungs, whether on the CPU even with a GPU, in how many seconds, and whether to keep all
    logs.
    """

    numbers: tuple[int, ...] = tuple(rung.number for rung in RUNGS)
    on_cpu: bool = False
    budget: float = BUDGET
    keep: bool = False


def climb(run: Session, request: SmokeRequest, progress: Progress) -> tuple[SmokeRun, Report]:
    """Climb as far as possible, and judge the result.

    If a rung breaks, or a script is named, the report includes the findings of `check`.

    Raises CannotJudgeError if the interpreter cannot be used at all.
    """
    facts = run.look()
    interpreter = facts.get(Interpreter)
    if isinstance(interpreter, Unknown):
        raise CannotJudgeError(f"{run.target.python} cannot be examined: {interpreter.reason}")
    _demand_that_the_tree_counts(run, request)
    device, chosen_by = device_of(run.machine, facts, on_cpu=request.on_cpu)
    own = own_model(facts, run.target, device)
    with _places(run.machine, progress) as (folder, logs):
        begun = time.monotonic()
        stage = Stage(
            machine=run.machine,
            target=run.target,
            facts=facts,
            python=interpreter.executable,
            environ=smoke_environ(run.machine, facts, folder),
            folder=folder,
            logs=logs,
            device=device,
            model=own,
            own_model=own is not None,
            train=run.target.data[0] if run.target.data else None,
            validation=run.target.data[-1] if run.target.data else None,
            begun=begun,
            budget=request.budget,
            look=Traces(folder / NOTE, run.machine).look,
        )
        rungs = tuple(_with_progress(_rungs(stage, request, interpreter, progress.show), progress))
    if rungs and (reason := _script_without_verl(run, facts)):
        rungs = (replace(rungs[0], notes=(reason, *rungs[0].notes)), *rungs[1:])
    climbed = SmokeRun(device, chosen_by, rungs, str(own or ""))
    trial_cache.keep_climb(run, facts, climbed)
    progress.show("running check")
    codes = () if climbed.broken is not None or run.target.files else ("SMOKE",)
    again = run.narrowed(codes) if codes else run
    report = examine(Request(again, known={SmokeRun: climbed}), progress.show).report
    return climbed, replace(report, unexamined=without_verl(facts))


@contextlib.contextmanager
def _places(machine: Machine, progress: Progress) -> Iterator[tuple[Path, Path]]:
    """Provide a private folder and one for the logs.

    Raises UsageError if there is no room for one of them.
    """
    with contextlib.ExitStack() as stack:
        try:
            logs = stack.enter_context(log_folder(progress.done))
            folder = stack.enter_context(private_folder(machine))
        except OSError as error:
            raise UsageError(
                f"{os_error_text(error)}: smoke needs a folder for temporary files; set TMPDIR to a "
                "writable one"
            ) from None
        yield folder, logs


def _demand_that_the_tree_counts(run: Session, request: SmokeRequest) -> None:
    """Reject a tree the job would not import here: Python searches this folder first for a -m module."""
    named, here = run.target.verl, run.machine.cwd / "verl"
    starts = any(rung.starts_job and rung.number in request.numbers for rung in RUNGS)
    looks_here = starts and not run.machine.environ.get("PYTHONSAFEPATH")
    if named and looks_here and os.path.isfile(here / "__init__.py") and not named.samefile(here):
        raise UsageError(
            f"--verl {named}: a job that starts in this folder imports {here}; start in another folder"
        )


def _script_without_verl(run: Session, facts: Collection) -> str:
    """Return why the user's launch script is not part of the climb; "" if it is, or there is none."""
    words = [*map(str, run.target.files), *run.target.words]
    if not words:
        return ""
    launch = facts.get(Launch)
    if isinstance(launch, Unknown):
        why = launch.reason
    elif launch.command is None:
        why = "it contains no command that starts verl (python -m verl... or a *.py with overrides)"
    else:
        return ""
    return f"{shlex.join(words)} was not used: {why}"


def _with_progress(rungs: Iterator[SmokeRung], progress: Progress) -> Iterator[SmokeRung]:
    """Report each rung when it is done: five take minutes."""
    for rung in rungs:
        if rung.seconds:
            progress.done(f"rung {rung.number}, {rung.name}: {rung.status}, {rung.seconds:.1f} s")
        yield rung


def _rungs(
    stage: Stage, request: SmokeRequest, interpreter: Interpreter, show: Callable[[str], None]
) -> Iterator[SmokeRung]:
    broken: SmokeRung | None = None
    for rung in RUNGS:
        if rung.number not in request.numbers:
            continue
        if broken is not None:
            yield SmokeRung(rung.number, rung.name, "not reached", cause=f"rung {broken.number} failed")
            continue
        if stage.left <= 0:
            yield SmokeRung(
                rung.number, rung.name, "not reached", cause="the time limit of --budget has passed"
            )
            continue
        doing = f"rung {rung.number} of {len(RUNGS)}, {rung.name}"
        show(doing)
        begun = time.monotonic()
        here = replace(stage, logs=stage.logs / f"rung-{rung.number}", show=partial(_show, show, doing))
        try:
            outcome = with_own_tree(stage.folder, _climbed(here, rung, interpreter))
        except KeyboardInterrupt:
            yield from _stopped(request, rung, time.monotonic() - begun)
            return
        kept = keep(here, outcome, always=request.keep)
        done = SmokeRung(
            rung.number,
            rung.name,
            outcome.status,
            seconds=round(time.monotonic() - begun, 3),
            cause=outcome.cause,
            remedy=outcome.remedy,
            code=outcome.code,
            lines=outcome.lines,
            log=kept,
            steps=outcome.steps,
            notes=outcome.notes,
            phase=outcome.phase,
        )
        broken = done if done.status == "failed" else None
        yield done


def _stopped(request: SmokeRequest, rung: Rung, seconds: float) -> Iterator[SmokeRung]:
    """Yield the outcomes after the user ended the climb: of the interrupted rung, and of those above it."""
    yield SmokeRung(rung.number, rung.name, "not reached", cause=f"stopped after {seconds:.0f} s")
    for above in RUNGS:
        if above.number > rung.number and above.number in request.numbers:
            yield SmokeRung(above.number, above.name, "not reached", cause="stopped before it")


def _show(show: Callable[[str], None], doing: str, step: str) -> None:
    show(f"{doing}: {step}")


def _climbed(stage: Stage, rung: Rung, interpreter: Interpreter) -> Outcome:
    if rung.needs_model:
        made = _with_a_model(stage, interpreter)
        if isinstance(made, Outcome):
            return made
        stage = made
    try:
        outcome: Outcome = importlib.import_module(
            f"verl_doctor.toolkit.commands.smoke.rungs.{rung.module}"
        ).climb(stage)
    except NotStarted as error:
        return Outcome("failed", f"{error.filename} cannot be started: {error.strerror}", code=_CANNOT)
    except OSError as error:
        return Outcome("failed", f"could not be tried: {os_error_text(error)}", code=_CANNOT)
    return outcome


def _with_a_model(stage: Stage, interpreter: Interpreter) -> Stage | Outcome:
    """Return the stage with a model and data, tiny ones if the user has none."""
    if stage.model is not None and stage.train is not None:
        return stage
    folder = stage.folder / "tiny"
    if os.path.isdir(folder):
        made: Tiny | Unknown = Tiny(
            folder / "model", folder / "train.parquet", folder / "validation.parquet", ""
        )
    else:
        stage.show("writing a tiny model")
        made = tiny.make(stage.machine, interpreter, folder, verl=stage.target.verl)
    if isinstance(made, Unknown):
        return Outcome("failed", made.reason, "name a model with --model and data with --data", _CANNOT)
    return replace(
        stage,
        model=stage.model or made.model,
        train=stage.train or made.train,
        validation=stage.validation or made.validation,
    )

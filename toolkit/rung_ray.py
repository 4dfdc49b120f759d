"""Rung 3: a Ray of its own starts, places actors as verl does, and a worker group of verl's answers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit import child_smoke_ray
from verl_doctor.toolkit.fact_resources import Resources
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.smoke_child import script
from verl_doctor.toolkit.smoke_failure import failed, left_out, steps_of
from verl_doctor.toolkit.smoke_folder import long_as
from verl_doctor.toolkit.smoke_rung import Outcome, Stage

_LIMIT = 300.0  # seconds; on two busy cores a minute is usual
_MORE = 2  # CPUs that Ray may hand out beside those of the group
# What Ray says again and again while it waits for what will not come (ray/autoscaler).
_WAITS = re.compile(r"No available node types can fulfill resource requests? .*")
# It goes on with less (ray/_private/services.py, determine_plasma_store_config).
_SLOW_STORE = re.compile(r"The object store is using \S+ instead of /dev/shm because [^.]*")
_CODES = {"import ray": "SMOKE101", "start Ray": "SMOKE106", "": "SMOKE107"}


def climb(stage: Stage) -> Outcome:
    """Start it, and climb within it."""
    gpus = gpus_of(stage) if stage.device == "cuda" else 1
    argv = script(stage.python, child_smoke_ray, str(gpus), str(gpus + _MORE))
    ran = stage.run(argv, limit=_LIMIT, watch=waits, name="ray")
    if ran.code == 0:
        return Outcome("passed", steps=steps_of(ran), notes=(*left_out(ran), *_SLOW_STORE.findall(ran.text)))
    return with_the_jobs_path(stage, failed(ran, _CODES, logs=logs_of_ray(stage.folder)))


def waits(text: str) -> str | None:
    """Why Ray will wait for ever, when it says so."""
    found = _WAITS.search(text)
    return f"Ray waits for what it does not have: {found[0]}" if found else None


def gpus_of(stage: Stage) -> int:
    """How many GPUs the job sees; one where that cannot be told."""
    resources = stage.facts.get(Resources)
    known = () if isinstance(resources, Unknown) else resources.gpus or ()
    return len(known) or 1


def logs_of_ray(folder: Path) -> Path | None:
    """The folder in which the processes of the youngest session below this one write."""
    found = sorted(folder.glob("**/ray/session_2*/logs"), key=lambda path: path.parent.name)
    return found[-1] if found else None


def with_the_jobs_path(stage: Stage, outcome: Outcome) -> Outcome:
    """Say the path that the job has for Ray where the log shows the private one, which was made as long."""
    names = ("RAY_TMPDIR", "TMPDIR")
    private = long_as(stage.folder, stage.environ, *names)
    if private == stage.folder:
        return outcome
    name, value = next((name, stage.environ[name]) for name in names if stage.environ.get(name))
    said = f"Ray's folder was made as long as the job's, {name}={value} ({len(value)} characters)"
    own = str(private), value.rstrip("/")
    return replace(
        outcome,
        cause=outcome.cause.replace(*own),
        lines=tuple(line.replace(*own) for line in outcome.lines),
        notes=(*outcome.notes, said),
    )

"""Rung 3: a private Ray starts, places actors as verl does, and a worker group of verl responds."""

from __future__ import annotations

import re

from verl_doctor.toolkit.commands.smoke.child import End, script
from verl_doctor.toolkit.commands.smoke.failure import failed, left_out, steps_of
from verl_doctor.toolkit.commands.smoke.ray import logs_of_ray, with_the_jobs_path
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.probes import smoke_ray

_LIMIT = 300.0  # seconds; about a minute on two busy cores
_MORE = 2  # CPUs for Ray besides those of the group
# What Ray logs repeatedly while it waits for something that will not come (ray/autoscaler).
_WAITS = re.compile(r"No available node types can fulfill resource requests? .*")
# It continues with less (ray/_private/services.py, determine_plasma_store_config).
_SLOW_STORE = re.compile(r"The object store is using \S+ instead of /dev/shm because [^.]*")
_CODES = {"import ray": "SMOKE101", "start Ray": "SMOKE106", "": "SMOKE107"}


def climb(stage: Stage) -> Outcome:
    """Start Ray, and climb within it."""
    gpus = stage.gpus if stage.device == "cuda" else 1
    argv = script(stage.python, smoke_ray, str(gpus), str(gpus + _MORE))
    ran = stage.run(argv, limit=_LIMIT, watch=waits, name="ray")
    if ran.code == 0:
        return Outcome("passed", steps=steps_of(ran), notes=(*left_out(ran), *_SLOW_STORE.findall(ran.text)))
    return with_the_jobs_path(stage, failed(ran, _CODES, logs=logs_of_ray(stage.folder)))


def waits(text: str) -> End | None:
    """Return why Ray will wait forever, if it reports that."""
    found = _WAITS.search(text)
    return End("no node", f"Ray waits for what it does not have: {found[0]}") if found else None

"""The Ray of a smoke test, which lies in its private folder: the logs, and the job's own path in what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.folder import long_as
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage


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
    note = f"Ray's folder was made as long as the job's, {name}={value} ({len(value)} characters)"
    own = str(private), value.rstrip("/")
    return replace(
        outcome,
        cause=outcome.cause.replace(*own),
        lines=tuple(line.replace(*own) for line in outcome.lines),
        notes=(*outcome.notes, note),
    )

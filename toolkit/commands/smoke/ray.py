"""The Ray of a smoke test in its private folder: its logs, with the job's own path in their text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.folder import long_as
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage


def logs_of_ray(folder: Path) -> Path | None:
    """Return the log folder of the youngest session below this folder."""
    found = sorted(folder.glob("**/ray/session_2*/logs"), key=lambda path: path.parent.name)
    return found[-1] if found else None


def with_the_jobs_path(stage: Stage, outcome: Outcome) -> Outcome:
    """Replace the private path in a log, which has the same length, by the job's path for Ray."""
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

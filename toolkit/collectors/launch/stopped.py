"""Where bash stops before it reaches the job, and what is missing when the job starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.job_program import Missing, Program
from verl_doctor.toolkit.collectors.launch.launch import ScriptError
from verl_doctor.toolkit.collectors.launch.launch_state import LaunchState
from verl_doctor.toolkit.sources.shell.found import Stop


def stopped(reader: LaunchState, program: Program | None) -> tuple[ScriptError, ...]:
    """Return where bash stops before it reaches the program.

    An error that ends a single command counts only if no program is left.
    """
    return tuple(
        ScriptError(
            stop.path,
            stop.line,
            stop.message,
            stop.extended,
            stop.lacks_arguments,
            stop.hurdle,
            stop.name,
        )
        for stop in reader.stops
        if (stop.whole and _is_before(stop, program)) or program is None
    )[:1]


def not_found(reader: LaunchState, program: Program | None) -> tuple[ScriptError, ...]:
    """Return what is missing when the job starts: its program, the program's source or an output folder."""
    if (
        program is None
        or program.submitted
        or program.conditional
        or reader.unread
        or reader.is_there is None
    ):
        return ()
    missing = program.missing or Missing(_not_on_path(program, reader.is_there))
    if not missing.message:
        return ()
    error = ScriptError(program.path, program.line, missing.message, hurdle=missing.hurdle, name=missing.name)
    return (error,)


def _not_on_path(program: Program, is_there: Callable[[str], bool]) -> str:
    """Return the shell's error for a program in no folder of the PATH a script sets; "" if all are found."""
    folders = [] if program.is_elsewhere else _folders_of_path(program)
    for name in program.names:
        if (
            name
            and folders
            and "/" not in name
            and not any(is_there(str(Path(program.folder, folder, name))) for folder in folders)
        ):
            return f"{name}: command not found"
    return ""


def _folders_of_path(program: Program) -> list[str]:
    """Return the folders of the PATH that the script sets; none if it sets none, or if they are unknown."""
    paths = [change for change in program.changes if change.name == "PATH"]
    if not paths or any(change.conditional or change.removed or change.value is None for change in paths):
        return []
    return [folder for folder in (paths[-1].value or "").split(os.pathsep) if folder]


def _is_before(stop: Stop, program: Program | None) -> bool:
    return program is None or stop.path != program.path or stop.line <= _last_line(program)


def _last_line(program: Program) -> int:
    return max([program.line, *(word.line for word in program.words if word.path == program.path)])

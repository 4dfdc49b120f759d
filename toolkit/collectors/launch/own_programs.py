"""Python programs of the user's own that do nothing but start another program."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.job_program import STARTS_VERL
from verl_doctor.toolkit.collectors.launch.launch_state import path_in
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped, unwrap
from verl_doctor.toolkit.sources.shell.found import Argument, Call
from verl_doctor.toolkit.sources.shell.walk import Walk


def started_instead(walk: Walk, unwrapped: Unwrapped, call: Call, cwd: str) -> Unwrapped:
    """Return what a Python program of the user's own starts, in its place, if its source names it."""
    program = unwrapped.program
    if not isinstance(program, PythonProgram) or program.launcher or not program.module.endswith(".py"):
        return unwrapped
    path = path_in(call.folder or cwd, program.module)
    source = walk.files.text_at(path, before=call)
    text = source.text if source is not None else ""
    if source is None or "verl" not in text or STARTS_VERL.search(text):
        return unwrapped
    from verl_doctor.toolkit.collectors.launch.spawned import spawned  # noqa: PLC0415 - only for such a program

    command = spawned(text, program.words, Argument(None, source.path, source.line, ""))
    found = unwrap(command) if command else None
    if found is None or found.program is None:
        return unwrapped
    return replace(
        found,
        names=(*unwrapped.names, *found.names),
        assigned=(*unwrapped.assigned, *found.assigned),
        dropped=(*unwrapped.dropped, *found.dropped),
        folder=unwrapped.folder,
        inherits=unwrapped.inherits,
        passed=unwrapped.passed,
        submits=unwrapped.submits or found.submits,
        ends_after=unwrapped.ends_after,
        outlives=unwrapped.outlives or found.outlives,
    )

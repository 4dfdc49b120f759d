"""Programs, sources and output folders that are missing where a program is called."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.effects import PYTHON
from verl_doctor.toolkit.collectors.launch.job_program import Missing, are_elsewhere
from verl_doctor.toolkit.collectors.launch.launch_state import LaunchState, path_in
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram
from verl_doctor.toolkit.sources.shell.found import Call
from verl_doctor.toolkit.sources.shell.walk import Walk

# Launchers that a Python package installs beside the interpreter of its environment.
_SCRIPTS_OF_PACKAGES = frozenset({"deepspeed", "accelerate", "colossalai", "horovodrun", "ray"})
# Programs behind which the next word is looked for on the PATH of this shell.
_PASSES_ON = frozenset(
    {"nohup", "exec", "command", "time", "nice", "timeout", "stdbuf", "env", "numactl", "taskset"}
)


def missing_file(
    state: LaunchState, walk: Walk, call: Call, names: Sequence[str], program: PythonProgram
) -> Missing | None:
    """Return the error for a missing program, source or output folder; None if all may exist."""
    module, opens = program.module, program.opens
    if PYTHON.fullmatch(opens.rpartition("/")[2]) and (
        "/" in opens or state.load(path_in(call.folder or state.cwd, opens)) is None
    ):
        return Missing(f"{names[-1]} opens {opens} as the source of a program")
    if state.is_there is None or not call.folder or are_elsewhere((*state.around, *names)):
        return None
    for name in names:
        if "/" in name and _is_missing(state, name, walk, call):
            return Missing(f"{name}: No such file or directory")
        is_first = all(other in _PASSES_ON for other in names[: names.index(name)])
        if name in _SCRIPTS_OF_PACKAGES and is_first and _lacks_script(state, name, walk, call):
            return Missing(f"{name}: command not found")
    opened = opens or (module if module.endswith(".py") else "")
    if opened and _is_missing(state, opened, walk, call):
        return Missing(f"python: can't open file {opened}", "source", opened)
    for name in call.written:
        folder = str(Path(path_in(call.folder, name)).parent)
        if not state.is_there(folder) and not walk.files.may_have_made(folder, before=call):
            message = f"{name}: No such file or directory"
            can_make = walk.presence.can_make(folder)
            return Missing(message, *(("output folder", posixpath.dirname(name)) if can_make else ()))
    return None


def _lacks_script(state: LaunchState, name: str, walk: Walk, call: Call) -> bool:
    """Return whether a package's launcher is neither beside the job's interpreter nor on the PATH.

    In addition, nothing may have brought it.
    """
    folders = [state.bin, *state.environ.get("PATH", "").split(os.pathsep)]
    searches = any(change.name == "PATH" for change in call.changes) or any(
        (word.text or "PATH=").startswith("PATH=") for word in call.argv
    )
    unsure = state.installs or walk.unread or call.doubts > 0 or searches
    known = state.bin != "" and not (
        unsure or walk.programs.may_be_exported(name) or walk.programs.may_have_brought(name, before=call)
    )
    return (
        known
        and state.is_there is not None
        and not any(state.is_there(f"{folder}/{name}") for folder in folders if folder)
    )


def _is_missing(state: LaunchState, name: str, walk: Walk, call: Call) -> bool:
    """Return whether a file is missing, and no earlier call may have created it or its first folder."""
    path = path_in(call.folder, name)
    made = any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in state.made)
    first = "" if name.startswith(("/", "..")) else Path(name).parts[0]
    made = made or walk.files.may_have_made(path, before=call)
    made = made or (first != "" and walk.files.may_have_made(first, before=call))
    return state.is_there is not None and not made and not state.is_there(path)

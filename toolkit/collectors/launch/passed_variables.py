"""Variables that a called program or shell gets: inherited, by `env`, or by overrides for Ray's workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.environment import is_listed
from verl_doctor.toolkit.collectors.launch.job_program import base_names
from verl_doctor.toolkit.collectors.launch.wrappers.containers import OWN_VARIABLES
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped
from verl_doctor.toolkit.sources.shell.found import Call
from verl_doctor.toolkit.sources.shell.state import UNSET, EnvironmentChange, ShellState

# Variables that the options of a program name which starts the job without those of the shell.
_NAMED = re.compile(r"(?<![^\s=])([A-Za-z_]\w*)(?==|\s)")
_RUNTIME_VARIABLE = re.compile(r"\+{0,2}(?:[\w.]+\.)?runtime_env\.env_vars\.(\w+)=(.*)", re.DOTALL)


def state_of(call: Call, environ: Mapping[str, str], folder: str, around: Iterable[str]) -> ShellState:
    """Return the state in which a shell starts in `folder`: with this shell's and the call's variables.

    In a container, which `around` names, there are none of this shell's; those that its options name have
    unknown values.
    """
    state = ShellState(environ, cwd=folder)
    state.changes, state.limits, state.forgotten = list(call.changes), list(call.limits), call.forgotten
    for change in call.changes:
        unsure = change.conditional and not call.conditional
        before, exported = state.value(change.name), state.exports(change.name)
        value = UNSET if change.removed else change.value
        state.variables[change.name] = None if unsure and value != before else value
        state.exported[change.name] = not change.removed if not unsure or exported != change.removed else None
    if not OWN_VARIABLES.isdisjoint(base_names(around)):
        state.cwd = ""
        options = " ".join(word.text or "" for word in call.argv)
        names = [name for name, value in state.variables.items() if value is not UNSET]
        state.environ, state.variables = {}, dict.fromkeys((*names, *_NAMED.findall(options)))
        state.variables |= {change.name: change.value for change in call.changes if change.value is not None}
    return state


def inherited(unwrapped: Unwrapped, call: Call, environ: Iterable[str]) -> Iterator[EnvironmentChange]:
    """Yield what a program gets of the variables given so far, and what it does not get of this shell's."""
    if unwrapped.inherits == "all":
        yield from call.changes
        return
    first, is_known = call.argv[0], unwrapped.inherits == "none"
    for change in call.changes:
        if change.name in unwrapped.passed:
            yield change
        elif not is_known:
            yield replace(change, value=None)
    for name in environ:
        if is_listed(name) and name not in unwrapped.passed and not name.startswith("SLURM_"):
            yield EnvironmentChange(
                name, None, first.path, first.line, removed=is_known, conditional=call.conditional
            )


def from_env(unwrapped: Unwrapped, conditional: bool) -> Iterator[EnvironmentChange]:
    """Yield what `env` sets and removes."""
    for word in unwrapped.assigned:
        name, _, value = (word.text or "").partition("=")
        yield EnvironmentChange(name, value, word.path, word.line, conditional=conditional)
    for word in unwrapped.dropped:
        if word.text:
            yield EnvironmentChange(
                word.text, None, word.path, word.line, removed=True, conditional=conditional
            )


def from_overrides(program: PythonProgram, conditional: bool) -> Iterator[EnvironmentChange]:
    """Yield the worker variables set by `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`."""
    for word in program.words:
        match = _RUNTIME_VARIABLE.fullmatch(word.text if word.text is not None else word.written)
        if match:
            value = match.group(2).strip("'\"") if word.text is not None else None
            yield EnvironmentChange(match.group(1), value, word.path, word.line, conditional=conditional)

"""The variables that `ray job submit` and `runtime_env` files give to a job and its workers."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.launch_state import LaunchState, path_in
from verl_doctor.toolkit.collectors.launch.runtime_env import (
    NotARuntimeEnvError,
    variables_in_json,
    variables_in_yaml,
)
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange


def from_job(state: LaunchState, unwrapped: Unwrapped, conditional: bool) -> tuple[EnvironmentChange, ...]:
    """Return what `ray job submit` gives to the job and its workers."""
    found: list[EnvironmentChange] = []
    for word in unwrapped.runtime_env:
        where = f"{word.path}:{word.line}"
        if word.text is None:
            state.unread.append(f"{where}: the name of the runtime_env file is unknown")
            continue
        path = path_in(state.cwd, word.text)
        text = state.load(path)
        if text is None:
            state.unread.append(f"{where}: {word.text} is named as runtime_env, but does not exist")
            continue
        found += from_file(state, text, path)
    for word in unwrapped.runtime_env_json:
        if word.text is None:
            state.unread.append(f"{word.path}:{word.line}: the runtime_env in JSON is unknown")
            continue
        try:
            found += [
                EnvironmentChange(name, value, word.path, word.line, conditional=conditional)
                for name, value in variables_in_json(word.text)
            ]
        except NotARuntimeEnvError as problem:
            state.unread.append(f"{word.path}:{word.line}: the argument of --runtime-env-json is {problem}")
    return tuple(found)


def from_file(state: LaunchState, text: str, path: str) -> list[EnvironmentChange]:
    """Return the variables of a `runtime_env` file."""
    try:
        return [EnvironmentChange(name, value, path, line) for name, value, line in variables_in_yaml(text)]
    except NotARuntimeEnvError as problem:
        state.unread.append(f"{path}: this is {problem}")
        return []

"""The folder that Ray sends to the cluster with the job, and what is excluded from it.

It is the `working_dir` of a `runtime_env`.

`ray job submit` takes a file or JSON; `--working-dir` takes precedence over both
(ray/dashboard/modules/dashboard_sdk.py: parse_runtime_env_args).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from verl_doctor.toolkit.collectors.launch.launch import WorkingDir
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped
from verl_doctor.toolkit.sources.shell.found import Argument

_NONE = WorkingDir(None, "", 0)
_OVERRIDE = re.compile(r"\+{0,2}ray_kwargs\.ray_init\.runtime_env\.working_dir=(.*)", re.DOTALL)


def submitted_folder(unwrapped: Unwrapped, load: Callable[[str], str | None], cwd: str) -> WorkingDir | None:
    """Return the folder that a `ray job submit` sends; None if it sends none."""
    found = _NONE
    for word in unwrapped.runtime_env:
        if word.text is not None:
            path = os.path.normpath(Path(cwd, word.text))
            found = _in_file(load(path) or "", path)
    for word in unwrapped.runtime_env_json:
        found = _parsed(word.text or "", word.path, word.line)
    for word in unwrapped.working_dir:
        found = replace(found, folder=word.text, path=word.path, line=word.line)
    return found if found.path else None


def folder_in_file(text: str, path: str) -> WorkingDir | None:
    """Return the folder that a `runtime_env` file names; None if it names none."""
    found = _in_file(text, path)
    return found if found.path else None


def folder_of_overrides(words: Iterable[Argument]) -> Iterator[WorkingDir]:
    """Yield the folders that overrides give to verl's own `ray.init`."""
    for word in words:
        if match := _OVERRIDE.fullmatch(word.text if word.text is not None else word.written):
            folder = match[1].strip("'\"") if word.text is not None else None
            yield WorkingDir(folder, word.path, word.line)


def _in_file(text: str, path: str) -> WorkingDir:
    return replace(_parsed(text, path), listed_in="" if path.endswith(".json") else path)


def _parsed(text: str, path: str, line: int = 0) -> WorkingDir:
    """Parse a `runtime_env`; `path` stays empty if it names no folder.

    Valid JSON is YAML too; invalid text is reported elsewhere.
    """
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _NONE
    entries = top.value if isinstance(top, yaml.MappingNode) else []
    nodes = {key.value: node for key, node in entries if isinstance(key, yaml.ScalarNode)}
    listed = nodes.get("excludes")
    patterns = listed.value if isinstance(listed, yaml.SequenceNode) else []
    excludes = tuple(str(pattern.value) for pattern in patterns if isinstance(pattern, yaml.ScalarNode))
    folder = nodes.get("working_dir")
    if not isinstance(folder, yaml.ScalarNode):
        return replace(_NONE, excludes=excludes)
    return WorkingDir(str(folder.value), path, line or folder.start_mark.line + 1, excludes)

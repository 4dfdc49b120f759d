"""Reads the variables that a `runtime_env` gives to the workers of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml


class NotARuntimeEnvError(Exception):
    """The text is not a `runtime_env`. The message gives a short reason."""


def variables_in_yaml(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, value and line of each entry of `env_vars`.

    A value that is neither text nor number is None.
    """
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        mark = getattr(problem, "problem_mark", None)
        raise NotARuntimeEnvError(f"invalid YAML: line {mark.line + 1}" if mark else "no YAML") from None
    if top is None:
        return
    if not isinstance(top, yaml.MappingNode):
        raise NotARuntimeEnvError("not a mapping of names to values")
    for key, value in top.value:
        if getattr(key, "value", None) != "env_vars" or not isinstance(value, yaml.MappingNode):
            continue
        for name, node in value.value:
            if isinstance(name, yaml.ScalarNode):
                is_text = isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null")
                yield str(name.value), str(node.value) if is_text else None, name.start_mark.line + 1


def variables_in_json(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each entry of `env_vars`."""
    try:
        top = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARuntimeEnvError("no JSON") from None
    if not isinstance(top, dict):
        raise NotARuntimeEnvError("no JSON object")
    variables = top.get("env_vars")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        yield str(name), value if isinstance(value, str) else None

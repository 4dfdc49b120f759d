"""The same variables as a Ray `runtime_env`, for the workers of a running cluster.

Ray passes values through `os.path.expandvars`, and blanks unset `${THIS_FORM}` references: ray 2.60,
`ray/_private/utils.py`, `update_envs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable

from verl_doctor.toolkit.repair.envfile import Entry

# Text that os.path.expandvars would treat as a variable's name. It cannot be escaped.
_EXPANDED = re.compile(r"\$(?:\w+|\{[^}]*\})", re.ASCII)


def written(entries: Iterable[Entry], set_here: Container[str]) -> str:
    """Return the file's content after its header.

    `set_here` are variables that the environment has without these files.
    """
    lines: list[str] = []
    held = False
    for entry in entries:
        lines += ["", *(f"  # {reason}" for reason in entry.reasons)]
        why_not = left_out(entry)
        held |= not why_not
        lines.append(
            f"  # {entry.name} is not here: {why_not}." if why_not else f"  {_pair(entry, set_here)}"
        )
    return "\n".join(["env_vars:" if held else "env_vars: {}", *lines]) + "\n"


def left_out(entry: Entry) -> str:
    """Return why a `runtime_env` cannot contain this entry, "" if it can."""
    if entry.value is None:
        return "a runtime_env cannot remove a variable"
    if entry.node_only:
        return "another node may need another value"
    if _EXPANDED.search(entry.value):
        return "Ray would expand the part after a dollar sign"
    if not _is_text(entry.value):
        return "it is not valid UTF-8"
    return ""


def value_for_ray(entry: Entry, set_here: Container[str]) -> str:
    """Return the value for a `runtime_env`. A prepended value comes before the node's own list.

    If this machine has no list, none is referenced: an empty list would add the current folder to the search
    path.
    """
    value = entry.value or ""
    return f"{value}{os.pathsep}${{{entry.name}}}" if entry.prepend and entry.name in set_here else value


def _pair(entry: Entry, set_here: Container[str]) -> str:
    import yaml  # noqa: PLC0415 - few runs write these files

    value = value_for_ray(entry, set_here)
    return f"{entry.name}: {yaml.safe_dump(value, default_style=chr(34), width=float('inf')).rstrip()}"


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

"""Applies one override to a composed configuration, as Hydra does.

Follows hydra-core 1.3, hydra/_internal/config_loader_impl.py, and OmegaConf.update (omegaconf 2.3).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from verl_doctor.toolkit.sources.hydra.grammar import Override
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED, lookup

Outcome = Literal["applied", "chosen", "no such key", "already there", "nothing to delete", "no such group"]


_MANDATORY = "???"  # a key that has no value yet


def merge(into: dict[str, Any], other: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    """Merge as OmegaConf does: dictionaries by key, everything else replaces."""
    for key, value in other.items():
        current = into.get(key)
        if isinstance(current, str) and isinstance(value, Mapping) and "${" in current:
            found = lookup(root, current.strip()[2:-1])
            if isinstance(found, Mapping):
                current = into[key] = copy.deepcopy(dict(found))
        if isinstance(current, dict) and isinstance(value, Mapping):
            merge(current, value, root)
        else:
            into[key] = copy.deepcopy(value)


def apply(tree: dict[str, Any], override: Override) -> Outcome:
    """Apply one override to the tree, or leave it unchanged and return why Hydra refuses."""
    if override.package is not None or not override.key:
        return "no such group"
    steps = override.key.split(".")
    if override.sign == "~":
        return _delete(tree, steps, override)
    adds = override.sign in ("+", "++")
    if override.sign == "+" and not isinstance(override.value, (dict, list)):
        current = lookup(tree, override.key)
        if current is not None and not _nothing(current):
            return "already there"
    parent = _parent(tree, steps[:-1], adds=adds)
    if parent is None:
        return "no such key"
    last = steps[-1]
    if isinstance(parent, list):
        if not last.isdigit() or int(last) >= len(parent):
            return "no such key"
        parent[int(last)] = override.value
        return "applied"
    if last not in parent and not adds:
        return "no such key"
    current = parent.get(last)
    if isinstance(current, dict) and isinstance(override.value, dict):
        if not adds and not _within(override.value, current):
            return "no such key"
        merge(current, override.value, tree)
    else:
        parent[last] = copy.deepcopy(override.value)
    return "applied"


def _parent(tree: dict[str, Any], steps: Sequence[str], *, adds: bool) -> dict[str, Any] | list[Any] | None:
    """Return the container of the last step.

    What is no container on the way becomes an empty dictionary, as in OmegaConf.update. That includes an
    interpolation of one.
    """
    # Nothing may be changed on the way unless the end is reached.
    node: Any = tree
    for step in steps:
        if isinstance(node, list):
            inner = node[int(step)] if step.isdigit() and int(step) < len(node) else None
        else:
            if step not in node and not adds:
                return None
            inner = node.get(step)
        if not isinstance(inner, (dict, list)):
            if not adds:
                return None
            inner = {}
            if isinstance(node, list):
                return None
            node[step] = inner
        node = inner
    found: dict[str, Any] | list[Any] = node
    return found


def _nothing(value: Any) -> bool:
    return value == _MANDATORY or not isinstance(value, (str, int, float, bool, list, dict))


def _within(other: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Return whether all keys of a dictionary exist where it is merged."""
    for key, value in other.items():
        if key not in current:
            return False
        inner = current[key]
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and not _within(value, inner):
            return False
    return True


def _delete(tree: dict[str, Any], steps: Sequence[str], override: Override) -> Outcome:
    current, value = lookup(tree, override.key), override.value
    unsure = isinstance(value, str) and "${" in value  # as of a word that a condition adds
    if current is None or current is MISSING or current == _MANDATORY:
        return "nothing to delete"
    if value is not None and value != current and current is not UNDETERMINED and not unsure:
        return "nothing to delete"
    # Unlike the others, this one goes through interpolations.
    parent = lookup(tree, ".".join(steps[:-1])) if steps[1:] else tree
    if parent is UNDETERMINED:
        return "applied"
    if not isinstance(parent, dict) or steps[-1] not in parent:
        return "nothing to delete"
    if unsure:
        parent[steps[-1]] = value
    else:
        del parent[steps[-1]]
    return "applied"

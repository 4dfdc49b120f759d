"""What remains known of the variables after a condition or a loop, where only one branch is taken."""

from __future__ import annotations

from collections.abc import Iterable

from verl_doctor.toolkit.sources.shell.expand import UNSET, Element, Unset, Value
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Assignment,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Simple,
)


def agreed(ends: list[dict[str, Value | Unset]]) -> dict[str, Value | Unset]:
    """Return the variables with the same value on all ways; the others become unknown."""
    merged: dict[str, Value | Unset] = {}
    for name in {name for end in ends for name in end}:
        values = [end.get(name, UNSET) for end in ends]
        same = all(value is values[0] or value == values[0] for value in values)
        arrays = [value for value in values if isinstance(value, list)]
        if same or len(arrays) < len(values):
            merged[name] = values[0] if same else None
        else:
            merged[name] = _united(arrays)
    return merged


def _common_beginning(arrays: list[list[str | None]]) -> list[str | None]:
    found = []
    for values in zip(*arrays, strict=False):
        if any(value != values[0] for value in values):
            break
        found.append(values[0])
    return found


def _united(arrays: list[list[str | None]]) -> Value:
    """Return the prefix that all have in common, then what follows it in either."""
    common = _common_beginning(arrays)
    rest = [item for array in arrays for item in array[len(common) :]]
    return [
        *common,
        *(None if item is None else Element(item, conditional=True) for item in dict.fromkeys(rest)),
    ]


def assigned(nodes: Iterable[Node]) -> set[str]:
    """Return the names that these commands may assign."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Simple):
            found |= {assignment.name for assignment in node.assignments}
            found |= {word.name for word in node.words if isinstance(word, Assignment)}
        elif isinstance(node, (Group, Loop, Function)):
            found |= assigned(node.body)
        elif isinstance(node, AndOr):
            found |= assigned([node.first, *(command for _, command in node.rest)])
        elif isinstance(node, Pipeline):
            found |= assigned(node.commands)
        elif isinstance(node, If):
            for condition, body in node.arms:
                found |= assigned((*condition, *body))
        elif isinstance(node, Case):
            for _, body in node.arms:
                found |= assigned(body)
    return found

"""Determines what is still known of the variables after a condition or a loop, of which only one branch is taken."""

from __future__ import annotations

from collections.abc import Iterable

from verl_doctor.toolkit.sources.shell.expand import UNSET, Either, Unset, Value, united
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

_MOST_TEXTS = 16


def agreed(ends: list[dict[str, Value | Unset]]) -> dict[str, Value | Unset]:
    """Return the variables with the same value on all paths; the others become undecided or unknown."""
    merged: dict[str, Value | Unset] = {}
    for name in {name for end in ends for name in end}:
        values = [end.get(name, UNSET) for end in ends]
        same = all(value is values[0] or value == values[0] for value in values)
        arrays = [value for value in values if isinstance(value, list)]
        if same:
            merged[name] = values[0]
        elif len(arrays) == len(values):
            merged[name] = united(arrays)
        else:
            merged[name] = _either(values)
    return merged


def _either(values: list[Value | Unset]) -> Either | None:
    """Return the possible texts; None when one is unknown, or when there are many."""
    texts: list[str] = []
    for value in values:
        if value is None or isinstance(value, list):
            return None
        texts += value.texts if isinstance(value, Either) else ["" if isinstance(value, Unset) else value]
    different = tuple(dict.fromkeys(texts))
    return Either(different) if len(different) <= _MOST_TEXTS else None


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

"""Finds the variables that commands may assign, without following them."""

from __future__ import annotations

from collections.abc import Iterable

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

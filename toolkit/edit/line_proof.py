"""Proves that an edited launch file, parsed before and after, means the same except for the edit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from verl_doctor.toolkit.collectors.launch.dockerfile import variables_in
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Simple, Substitution, Written, below

RequestedEdits = Mapping[int, tuple[str, str | None]]
"""By line (from 1): the word to be replaced, and its replacement; None if the line is to be removed."""


def proven(before: str, after: str, syntax: str, wanted: RequestedEdits) -> bool:
    """Return whether only the intended parts have changed."""
    readers = {"shell script": _shell, "Dockerfile": _dockerfile, "runtime_env": _yaml}
    return readers[syntax](before, after, wanted)


def _shell(before: str, after: str, wanted: RequestedEdits) -> bool:
    """Compare the commands and the constructs around them.

    Trees contain no comments, and `:` does nothing.
    """
    tree = parse(before)
    commands = [node for node in below(tree) if isinstance(node, Simple)]
    for line, (word, instead) in wanted.items():
        if instead is None:
            found = sum(node.line == line and _is_to_go(node, wanted) for node in commands)
        else:  # of a here-document only the first line counts
            found = sum(_holds(node, line, word) for node in commands)
        if found != 1:
            return False
    return bool(_form(tree, wanted) == _form(parse(after), {}))


def _holds(node: Simple, line: int, word: str) -> bool:
    return line in _lines(node) and _renamed(node, [(word, "")]) != _renamed(node, [])


def _lines(node: Simple) -> range:
    """Return the lines on which the words of a command begin."""
    return range(node.line, max(part.line for part in below(node) if hasattr(part, "line")) + 1)


def _is_to_go(node: Simple, wanted: RequestedEdits) -> bool:
    """Return whether a command only sets the variable that is to be removed."""
    name, instead = wanted.get(node.line, ("", ""))
    set_here = [*node.assignments, *(word for word in node.words if isinstance(word, Assignment))]
    written = [word.raw for word in node.words if isinstance(word, Written)]
    return (
        instead is None
        and [assignment.name for assignment in set_here] == [name]
        and written in ([], ["export"])
        and not any(isinstance(part, Substitution) for part in below(set_here[0]))
    )


def _form(node: Any, wanted: RequestedEdits) -> Any:
    """Return a tree without line numbers, no-ops and removed lines, and with the intended words."""
    if isinstance(node, tuple):
        left = (part for part in node if not (isinstance(part, Simple) and _is_nothing(part, wanted)))
        return tuple(_form(part, wanted) for part in left)
    if isinstance(node, Simple):
        here = [words for line, words in wanted.items() if line in _lines(node)]
        return _renamed(node, here)
    if is_dataclass(node):
        parts = [_form(getattr(node, part.name), wanted) for part in fields(node) if part.name != "line"]
        return (type(node).__name__, *parts)
    return node


def _is_nothing(node: Simple, wanted: RequestedEdits) -> bool:
    texts = [getattr(word, "raw", "") for word in node.words]
    return (texts == [":"] and not node.assignments) or _is_to_go(node, wanted)


def _renamed(node: Any, words: list[tuple[str, str | None]]) -> Any:
    """Return a tree without line numbers, with words replaced in its texts."""
    if isinstance(node, str):
        for word, instead in words:
            new = (instead or "").replace("\\", "\\\\")
            node = re.sub(rf"(?<![\w.]){re.escape(word)}(?![\w.])", new, node)
        return node
    if isinstance(node, tuple):
        return tuple(_renamed(part, words) for part in node)
    if is_dataclass(node):
        names = (part.name for part in fields(node) if part.compare and part.name != "line")
        return (type(node).__name__, *(_renamed(getattr(node, name), words) for name in names))
    return node


def _dockerfile(before: str, after: str, wanted: RequestedEdits) -> bool:
    """Compare what `ENV` sets."""
    old = list(variables_in(before))
    if {(line, word) for line, (word, _) in wanted.items()} - {(env.line, env.name) for env in old}:
        return False
    expected = []
    for env in old:
        word, instead = wanted.get(env.line, ("", ""))
        if word != env.name or instead:
            expected.append((instead if word == env.name else env.name, env.value))
    return expected == [(env.name, env.value) for env in variables_in(after)]


def _yaml(before: str, after: str, wanted: RequestedEdits) -> bool:
    """Compare the documents. An `env_vars` that loses its last entry is a null, which Ray does not accept."""
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
    except (yaml.YAMLError, RecursionError, ValueError):
        return False
    variables = old.get("env_vars") if isinstance(old, dict) else None
    if not isinstance(variables, dict):
        return False
    names = dict(wanted.values())
    left = {names.get(name) or name: value for name, value in variables.items() if names.get(name, name)}
    return bool(left) and bool(new == {**old, "env_vars": left})

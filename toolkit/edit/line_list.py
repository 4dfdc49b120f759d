"""Adds entries to a list in a `runtime_env` YAML.

Every other byte stays the same, and the result is parsed again as proof.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from verl_doctor.toolkit.sources.python.edit import CannotEdit


def extended(source: bytes, path: str, key: str, entries: Sequence[str], comment: str) -> bytes:
    """Add entries to the end of the list `key`, or create it.

    New lines end in `comment`; a changed line is kept as a comment above.

    Raises CannotEdit, with the reason.
    """
    try:
        text = source.decode("utf-8")
        top = yaml.compose(text, Loader=yaml.SafeLoader)
        before = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise CannotEdit(f"{path} is not valid YAML") from None
    if not isinstance(before, dict) or not isinstance(top, yaml.MappingNode) or top.flow_style:
        raise CannotEdit(f"{path} is not a mapping with one name per line; edit it by hand")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    node = next((value for name, value in top.value if name.value == key), None)
    written = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    if node is None:
        lines += [f"{key}:  {comment}{end}", *(f"  - {entry}{end}" for entry in written)]
    elif not isinstance(node, yaml.SequenceNode):
        raise CannotEdit(f"{path}: {key} is not a list; edit it by hand")
    elif node.flow_style:
        _extend_line(lines, node, written, f"  {comment}{end}", path)
    else:
        place = node.value[-1].end_mark.line + 1
        lines[place:place] = [f"{' ' * node.start_mark.column}- {entry}  {comment}{end}" for entry in written]
    after = "".join(lines)
    if not _holds(after, {**before, key: [*(before.get(key) or ()), *entries]}):
        raise CannotEdit(f"{path}: {key} cannot be extended without changing the lines around it")
    return after.encode()


def _extend_line(
    lines: list[str], node: yaml.SequenceNode, written: Sequence[str], tail: str, path: str
) -> None:
    """Return the edit of a list in brackets on a single line."""
    number = node.start_mark.line
    old = lines[number].rstrip("\r\n")
    if node.end_mark.line != number:
        raise CannotEdit(f"{path}:{number + 1}: the list spans several lines; edit it by hand")
    column = node.value[-1].end_mark.column if node.value else node.start_mark.column + 1
    new = f"{old[:column]}{', ' if node.value else ''}{', '.join(written)}{old[column:]}"
    indent = old[: len(old) - len(old.lstrip())]
    lines[number : number + 1] = [f"{indent}# {old.strip()}{tail}", f"{new}{tail}"]


def _holds(text: str, wanted: Any) -> bool:
    try:
        return bool(yaml.safe_load(text) == wanted)
    except (yaml.YAMLError, RecursionError):
        return False

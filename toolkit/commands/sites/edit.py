"""Write paths into the user's configuration.

Every other byte stays, and the result is read back before it counts.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.system import toml

_TABLE = re.compile(r"^\s*\[")
_TEXT = r'(?:"(?:[^"\\]|\\.)*"|' + r"'[^']*')"


class CannotWriteError(Exception):
    """The reason why paths cannot be written into a configuration: one sentence with the next step."""


def with_sites(text: str, wanted: Mapping[str, str], *, below: tuple[str, ...] = ()) -> str:
    """Return a TOML file with these paths in its table `sites`, nested `below` these tables.

    Raises CannotWriteError if the file would change in any other way.
    """
    before = _parsed(text, "the file is not valid TOML")
    expected = copy.deepcopy(before)
    place = expected
    for name in (*below, "sites"):
        place = place.setdefault(name, {})
    for name, path in wanted.items():
        place[name] = {**place[name], "path": path} if isinstance(place.get(name), dict) else path
    after = _edited(text, wanted, ".".join((*below, "sites")))
    if _parsed(after, "its form cannot be changed safely") != expected:
        raise CannotWriteError("its form cannot be changed safely; add the lines by hand")
    return after


def _parsed(text: str, otherwise: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotWriteError(f"{otherwise} ({error}); add the lines by hand") from None
    return document


def _edited(text: str, wanted: Mapping[str, str], table: str) -> str:
    """Replace values in place; add new ones at the table's end, or in a new table at the file's end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    head = re.compile(rf"^\s*\[\s*{re.escape(table)}\s*\]\s*(?:#.*)?$")
    start = next((at for at, line in enumerate(lines) if head.match(line.rstrip("\r\n"))), None)
    if start is None:
        added = [f"{_key(name)} = {_quoted(path)}{newline}" for name, path in wanted.items()]
        gap = [] if not text else [newline] if text.endswith("\n") else [newline, newline]
        return "".join([*lines, *gap, f"[{table}]{newline}", *added])
    end = next((at for at in range(start + 1, len(lines)) if _TABLE.match(lines[at])), len(lines))
    added = []
    for name, path in wanted.items():
        entry = re.compile(
            rf"^(\s*(?:{re.escape(name)}|\"{re.escape(name)}\")\s*=\s*(?:\{{.*?\bpath\s*=\s*)?){_TEXT}"
        )
        at = next((at for at in range(start + 1, end) if entry.match(lines[at])), None)
        if at is None:
            added.append(f"{_key(name)} = {_quoted(path)}{newline}")
        else:
            lines[at] = entry.sub(lambda match, path=path: match[1] + _quoted(path), lines[at])  # type: ignore[misc]
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    if added and not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    return "".join([*lines[:end], *added, *lines[end:]])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """Return a basic TOML string. What JSON encodes differently is rejected when it is read back."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

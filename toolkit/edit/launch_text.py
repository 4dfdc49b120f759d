"""The text of a launch file: decoding, and commands that continue after a backslash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.sources.python.edit import CannotEdit

_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")


def launch_text(source: bytes, path: str) -> str:
    """Decode a launch file. Raises CannotEdit if it is not UTF-8."""
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError:
        raise CannotEdit(f"{path} is not valid UTF-8") from None


def continues(line: str) -> bool:
    """Return whether a backslash at the end of a line continues the command.

    Of two backslashes, the first escapes the second.
    """
    return _CONTINUED.search(line.rstrip("\r\n")) is not None


def first_line(lines: Sequence[str], number: int) -> int:
    """Return the first line (from 1) of the command on this line."""
    while number > 1 and continues(lines[number - 2]):
        number -= 1
    return number


def last_line(lines: Sequence[str], number: int) -> int:
    """Return the last line (from 1) of the command on this line."""
    while number < len(lines) and continues(lines[number - 1]):
        number += 1
    return number

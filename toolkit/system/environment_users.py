"""Which processes run from an environment: their program lies in it, or a library of it is in their memory."""

from __future__ import annotations

import os
from pathlib import Path

_LONGEST = 60  # characters of a command line


def users_of(environment: Path) -> list[str]:
    """The number and the command of each, without this process and those that it was started by. Linux alone tells."""
    prefixes = {f"{spelt}/" for spelt in (str(environment), os.path.realpath(environment))}
    found = []
    for name in sorted(filter(str.isdigit, _names("/proc")), key=int):
        words = _read(f"/proc/{name}/cmdline").split("\0")
        mapped = _read(f"/proc/{name}/maps")
        if any(words[0].startswith(prefix) or prefix in mapped for prefix in prefixes):
            found.append((int(name), " ".join(words).strip()[:_LONGEST]))
    return [f"{number} ({command})" for number, command in found if number not in _own_line()]


def _own_line() -> set[int]:
    """This process and those above it."""
    number, line = os.getpid(), set()
    while number > 1 and number not in line:
        line.add(number)
        rest = _read(f"/proc/{number}/stat").rpartition(")")[2].split()
        number = int(rest[1]) if len(rest) > 1 else 0
    return line


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

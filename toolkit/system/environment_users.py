"""Processes that use an environment: their program is in it, or they have mapped a library of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 60  # characters of a command line


def users_of(environment: Path) -> list[str]:
    """Return the number and command of each, except for this process and its ancestors. Linux only."""
    spelled = {str(environment), os.path.realpath(environment)}
    own = _own_ancestors()
    found = []
    for name in sorted(filter(str.isdigit, _names("/proc")), key=int):
        if int(name) not in own and _runs_from(f"/proc/{name}", spelled):
            command = _read(f"/proc/{name}/cmdline").replace("\0", " ").strip()
            found.append(f"{name} ({command[:_LONGEST]})")
    return found


def _runs_from(process: str, spelled: Iterable[str]) -> bool:
    """Return whether a process uses the environment.

    Its program is in the environment, a file of the environment is mapped, or the environment is activated in
    it.
    """
    first = _read(f"{process}/cmdline").partition("\0")[0]
    if "/" in first:
        program = os.path.normpath(os.path.join(_link(f"{process}/cwd"), first))  # noqa: PTH118 - texts
        started = any(program.startswith(f"{prefix}/bin/") for prefix in spelled)
    else:
        python = os.path.basename(_link(f"{process}/exe")).startswith("python")  # noqa: PTH119 - texts
        variables = _read(f"{process}/environ").split("\0") if python else []
        started = any(f"VIRTUAL_ENV={prefix}" in variables for prefix in spelled)
    return started or any(f"{prefix}/" in _read(f"{process}/maps") for prefix in spelled)


def _own_ancestors() -> set[int]:
    """Return this process and its ancestors."""
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


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - texts
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

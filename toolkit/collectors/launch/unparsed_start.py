"""Launch scripts that start verl where the reader cannot follow.

That is in a here-document, a substitution, or a string for another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from verl_doctor.toolkit.machine import Machine

_STARTS = re.compile(r"^(?!\s*#).*(?:-m\s+verl\.|\bmain_\w*ppo\b)", re.MULTILINE)


def unread_start(machine: Machine, paths: Iterable[str]) -> str:
    """Describe where such a start is; "" if the files have none."""
    for path in paths:
        text = machine.read(path) or ""
        if found := _STARTS.search(text):
            line = text.count("\n", 0, found.start()) + 1
            return (
                f"{path}:{line} has one in a here-document, a substitution or a string, which is not "
                "followed: write that command to a script of its own, or name it after --"
            )
    return ""

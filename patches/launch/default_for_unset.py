"""Fix for CFG116: let a line that extends a variable begin with nothing where the variable is unset."""

from __future__ import annotations

import re

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.launch_text import continues, launch_text
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.text import counted


@fix("default-for-unset", repairs="CFG116", safety="safe")
def default_for_unset(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Let a line that extends a variable begin with nothing where the variable is unset.

    `PATH=/x:$PATH` becomes `PATH=/x${PATH:+:$PATH}`: the colon is written only if something follows, because
    an empty entry stands for the current folder. Where the variable is set, the value stays the same.
    """
    place = finding.location
    names = [
        error.extended
        for error in launch.stopped
        if place and (error.path, error.line) == (place.path, place.line)
    ]
    if place is None or not place.line or not any(names):
        return Refusal("only the user knows the value of this variable")
    line = place.line

    def edited(path: str, before: bytes) -> bytes:
        lines = launch_text(before, path).split("\n")
        old = lines[line - 1]
        if continues(old) or (line > 1 and continues(lines[line - 2])):
            raise CannotEdit(f"{place}: this line is part of a longer command; edit it by hand")
        new, count = _extended(old, names[0])
        if count != 1:
            raise CannotEdit(f"{place}: this line reads {names[0]} {counted(count, 'time')}; edit it by hand")
        indent = old[: len(old) - len(old.lstrip())]
        lines[line - 1 : line] = [f"{indent}# {old.strip()}  {marker.comment('CFG116')}", new]
        return "\n".join(lines).encode()

    return edited_file(finding, sources, edited)


def _extended(line: str, name: str) -> tuple[str, int]:
    """Return a line that reads the variable only if it is set, and how often it reads it.

    The line includes the colon before or behind the variable.
    """
    pattern = re.compile(rf"(?P<before>:?)\$(?:{name}\b|\{{{name}\}})(?P<behind>:?)")

    def replaced(match: re.Match[str]) -> str:
        before, behind = match["before"], match["behind"]
        if before and behind:
            return f"${{{name}:+:${name}}}:"
        return f"${{{name}:+{before}${name}{behind}}}" if before or behind else f"${{{name}:-}}"

    return pattern.subn(replaced, line)

"""Launch files' lines that put folders on the loader's path, and the edit that removes folders from them."""

from __future__ import annotations

import re
from collections.abc import Callable

from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal
from verl_doctor.toolkit.collectors.cuda.library_path import VARIABLE
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.sources.python.edit import CannotEdit

_SETS = re.compile(
    rf"\s*(?:export\s+)?{VARIABLE}=(?P<quote>[\"']?)(?P<value>[^\"'#\s]*)(?P=quote)\s*(?:#.*)?"
)
# References to the variable's old value, in the forms that scripts use; the colon may be inside the braces.
_ITSELF = re.compile(
    rf"\$\{{{VARIABLE}:\+:?\$(?:{VARIABLE}|\{{{VARIABLE}\}}):?\}}|\$\{{{VARIABLE}(?::?-)?\}}|\${VARIABLE}\b"
)


def leave_out(
    finding: Finding,
    launch: Launch | Unknown,
    sources: SourceFiles,
    comment: str,
    unwanted: Callable[[str], bool],
) -> list[Change] | Refusal:
    """Remove the `unwanted` folders from the finding's lines. A line that adds nothing else is commented out.

    Refuses a line that does more than set the variable.
    """

    def edit(place: Location) -> LineEdit:
        source = sources.read(place.path)
        lines = source.decode("utf-8", "replace").splitlines() if isinstance(source, bytes) else []
        line = lines[(place.line or 0) - 1] if 0 < (place.line or 0) <= len(lines) else ""
        entries = _entries(line)
        found = [entry for entry in entries if unwanted(entry.rstrip("/"))]
        if not found:
            raise CannotEdit(f"{place}: this line does more than set {VARIABLE}; edit it by hand")
        if len(found) == len(entries):
            return LineEdit(place.line or 0, VARIABLE, extends=True)
        if len(found) > 1:
            raise CannotEdit(f"{place}: this line names {len(found)} such folders; edit it by hand")
        value = _value(line)
        if f"{found[0]}:" in value:
            return LineEdit(place.line or 0, f"{found[0]}:", "")
        return LineEdit(place.line or 0, value, value.replace(f":{found[0]}", "", 1))

    return edit_lines(finding, launch, sources, comment, edit)


def is_stubs(folder: str) -> bool:
    """Return whether a folder holds libraries for the linker only."""
    return folder.endswith("/stubs")


def _entries(line: str) -> list[str]:
    """Return the folders that a shell script's line puts on the loader's path.

    There are none if the line does anything else.
    """
    return [entry for entry in _ITSELF.sub("", _value(line)).split(":") if entry]


def _value(line: str) -> str:
    match = _SETS.fullmatch(line)
    return match["value"] if match else ""

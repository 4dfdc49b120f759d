"""Lines of launch files that do nothing but put a stubs folder on the loader's path."""

from __future__ import annotations

import re

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
# The variable itself in the ways in which scripts go on with its old value; the colon may stand inside.
_ITSELF = re.compile(
    rf"\$\{{{VARIABLE}:\+:?\$(?:{VARIABLE}|\{{{VARIABLE}\}}):?\}}|\$\{{{VARIABLE}(?::?-)?\}}|\${VARIABLE}\b"
)


def comment_out(
    finding: Finding, launch: Launch | Unknown, sources: SourceFiles, comment: str
) -> list[Change] | Refusal:
    """Comment the finding's lines out. Refused where a line names other folders too, or does something else."""

    def remove(place: Location) -> LineEdit:
        source = sources.read(place.path)
        lines = source.decode("utf-8", "replace").splitlines() if isinstance(source, bytes) else []
        line = lines[(place.line or 0) - 1] if 0 < (place.line or 0) <= len(lines) else ""
        if not only_adds_stubs(line):
            raise CannotEdit(f"{place}: this line does more than add a stubs folder; edit it by hand")
        return LineEdit(place.line or 0, VARIABLE, extends=True)

    return edit_lines(finding, launch, sources, comment, remove)


def only_adds_stubs(line: str) -> bool:
    """Whether a line of a shell script would change nothing but for the stubs folder that it adds."""
    match = _SETS.fullmatch(line)
    if match is None:
        return False
    left = [entry for entry in _ITSELF.sub("", match["value"]).split(":") if entry]
    return bool(left) and all(entry.rstrip("/").endswith("/stubs") for entry in left)

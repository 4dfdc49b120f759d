"""Shared by the fixes of launch files: turns a finding's locations into one change for each file."""

from __future__ import annotations

import re
from collections.abc import Callable

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Launch
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.edit.command_edit import with_line_before
from verl_doctor.toolkit.edit.line_edit import LineEdit, Syntax, edited
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.sources.python.edit import CannotEdit

_READ_AS_JSON = ".json"


def edit_lines(
    finding: Finding,
    launch: Launch | Unknown,
    sources: SourceFiles,
    comment: str,
    edit: Callable[[Location], LineEdit],
) -> list[Change] | Refusal:
    """Edit the line at each location of a finding, all or none. `edit` may raise CannotEdit, too.

    A finding about the shell alone has no locations.
    """
    places = [place for place in (finding.location, *finding.also) if place is not None and place.line]

    def lines_edited(path: str, before: bytes) -> bytes:
        if path.endswith(_READ_AS_JSON):
            raise CannotEdit(f"{path}: JSON has no comments to keep the old line in; edit it by hand")
        here = [edit(place) for place in places if place.path == path]
        return edited(before, path, _syntax(path, launch), here, comment)

    return edited_files(sorted({place.path for place in places}), sources, lines_edited)


def line_before_command(
    line: str, launch: Launch, sources: SourceFiles, comment: str, why: str, at: Location | None = None
) -> list[Change] | Refusal:
    """Add a line before the training command, or before another `at` this place."""
    command = launch.command
    place = at or (Location(command.path, command.line) if command else None)
    if place is None or place.path == COMMAND_LINE or not place.line:
        return Refusal(f"the training command is in no file; run this before it: {line}")
    number = place.line
    return edited_files(
        [place.path],
        sources,
        lambda path, before: with_line_before(before, path, number, line, comment),
        why,
    )


def sets_variable(name: str, launch: Launch, sources: SourceFiles) -> bool:
    """Return whether a line of the script that starts the training sets a variable."""
    text = sources.read(launch.command.path) if launch.command else None
    return isinstance(text, bytes) and re.search(rf"(?m)^[ \t]*{re.escape(name)}=".encode(), text) is not None


def variable_at(place: Location, launch: Launch | Unknown, readers: VariableReaders) -> Reading:
    """Return the variable that this line sets and nothing reads.

    Raises CannotEdit unless there is exactly one.
    """
    settings = () if isinstance(launch, Unknown) else launch.settings
    names = {setting.name for setting in settings if (setting.path, setting.line) == (place.path, place.line)}
    found = [reading for reading in readers.dead() if reading.name in names]
    if len(found) != 1:
        raise CannotEdit(
            f"{place}: this line does not set exactly one variable that nothing reads; edit it by hand"
        )
    return found[0]


def _syntax(path: str, launch: Launch | Unknown) -> Syntax:
    """Return the syntax of a launch file.

    A file that was not given is sourced by one that was, so it is a shell script.
    """
    files = () if isinstance(launch, Unknown) else launch.files
    kind = dict(files).get(path, "shell script")
    return "shell script" if kind == "command line" else kind

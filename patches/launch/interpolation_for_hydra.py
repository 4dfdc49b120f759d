"""Fix for CFG116: escape a Hydra interpolation that bash would expand as a variable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import is_within_a_text
from verl_doctor.toolkit.edit.launch_text import first_line, last_line, launch_text
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding

_INTERPOLATION = re.compile(r"\$\{[A-Za-z_]\w*(?:\.\w+)+(?::[^{}]*)?\}")


@fix("interpolation-for-hydra", repairs="CFG116", safety="safe")
def interpolation_for_hydra(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Put a backslash before each Hydra interpolation that bash would expand.

    Bash allows no dot in a variable's name, so the unchanged script stops there.
    """
    line = finding.location.line if finding.location else None
    if not line:
        return Refusal("the finding names no line")

    def escaped(path: str, before: bytes) -> bytes:
        return _edited(launch_text(before, path), line, marker.comment("CFG116")).encode()

    changes = edited_file(finding, sources, escaped)
    return changes or Refusal(f"{finding.location}: there is no interpolation outside single quotes")


def _edited(text: str, line: int, comment: str) -> str:
    """Return the text with the command on this line (from 1) corrected.

    Its old lines stay as comments above it.
    """
    lines = text.split("\n")
    first, last = _command(lines, line)
    old = lines[first - 1 : last]
    new = "".join(_escaped("\n".join(old))).split("\n")
    indent = old[0][: len(old[0]) - len(old[0].lstrip())]
    kept = [f"{indent}# {was.strip()}  {comment}" for was, now in zip(old, new, strict=True) if was != now]
    return "\n".join([*lines[: first - 1], *kept, *new, *lines[last:]])


def _command(lines: Sequence[str], line: int) -> tuple[int, int]:
    """Return the first and the last line (from 1) of a command, whose texts may have several lines."""
    readable = [_INTERPOLATION.sub(lambda found: "x" * len(found[0]), text) for text in lines]
    first, last = first_line(lines, line), last_line(lines, line)
    while first > 1 and is_within_a_text(readable, first - 1):
        first = first_line(lines, first - 1)
    while last < len(lines) and is_within_a_text(readable, last):
        last = last_line(lines, last + 1)
    return first, last


def _escaped(command: str) -> Iterator[str]:
    """Yield the parts of a command, with a backslash before each interpolation outside single quotes."""
    quote, at = "", 0
    while at < len(command):
        sign, found = command[at], _INTERPOLATION.match(command, at)
        part = sign
        if sign == "\\" and quote != "'":
            part = command[at : at + 2]
        elif sign in "'\"" and quote in ("", sign):
            quote = "" if quote else sign
        elif sign == "#" and not quote and command[at - 1 : at].strip() == "":
            part = command[at:].partition("\n")[0]
        elif found and quote != "'":
            yield "\\"
            part = found[0]
        yield part
        at += len(part)

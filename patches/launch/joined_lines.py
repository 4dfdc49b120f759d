"""Fix for CFG103 and CFG104: join the lines of a command that was cut in two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verl_doctor.patches.shared.edited_files import edited_file
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.command_edit import arguments, has_broken_syntax, is_within_a_text
from verl_doctor.toolkit.edit.launch_text import continues, first_line, launch_text
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit

_BROKEN_OFF = re.compile(r"(?P<line>.*(?<!\\)(?:\\\\)*\\)[ \t]+(?:#.*)?")
_IN_A_COMMENT = re.compile(
    r"""(?P<line>\s*(?:[^#'"\\\s]|'[^']*'|"[^"]*")(?:[^#'"\\]|'[^']*'|"[^"]*")*?)[ \t]+#.*\\[ \t]*"""
)
_SETTING = re.compile(r"\s*[\"']?(?:\+{0,2}|~)[A-Za-z_]\w*(?:[./]\w+)+=")
_ENDS_IN_A_WORD = re.compile(r"\s*[^\s#][^#;&|<>]*[^\s#;&|<>\\]\s*")
_COMMENT = re.compile(r"\s*#")
_TAKES_NO_SETTINGS = {"export", "declare", "typeset", "local", "readonly", "set", "source", ".", "cd", "echo"}


@fix("joined-lines", repairs=("CFG103", "CFG104"), safety="safe")
def joined_lines(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    r"""Join the lines of a command that a space after a \ or a comment has cut in two.

    Only where the line is meant to continue and a setting follows. The space is removed, a comment moves
    above the command, even one in front of the \, and a \ that is missing is added. Texts that the script
    writes stay as they are.
    """

    def joined(path: str, before: bytes) -> bytes:
        lines, comment = launch_text(before, path).split("\n"), marker.comment("CFG104")
        at = finding.location.line if finding.location else None
        after = list(_joined(lines, comment, at))
        if after == lines and at:
            after = _continued(lines, at, comment)
        text = "\n".join(after)
        if has_broken_syntax(text) and not has_broken_syntax("\n".join(lines)):
            raise CannotEdit(f"{finding.location}: bash would not read the joined lines; edit it by hand")
        return text.encode()

    changes = edited_file(finding, sources, joined)
    return changes or Refusal(
        f"{finding.location}: neither a comment nor a space after a \\ cuts this command; edit it by hand"
    )


def _joined(lines: Sequence[str], comment: str, at: int | None = None) -> Iterator[str]:
    """Yield the lines with each command in one piece. What interrupted it is kept as a comment above it.

    Texts stay as they are, unless the command `at` this line (from 1) is in one, as in `bash -c "..."`.
    """
    everywhere = at is not None and 0 < at <= len(lines) and is_within_a_text(lines, at)
    command: list[str] = []
    kept: list[str] = []
    for number, line in enumerate(lines):
        broken, swallowed = _BROKEN_OFF.fullmatch(line), _IN_A_COMMENT.fullmatch(line)
        interrupts = _COMMENT.match(line) if command else None
        if (broken or swallowed or interrupts) and not (
            _goes_on(lines[number + 1 :]) and (everywhere or not is_within_a_text(lines, number + 1))
        ):
            broken = swallowed = interrupts = None
        if interrupts:
            kept.append(f"{line}  {comment}")
            continue
        if broken or swallowed:
            kept.append(f"# {line.strip()}  {comment}")
        command.append(broken["line"] if broken else f"{swallowed['line']} \\" if swallowed else line)
        if not continues(command[-1]):
            yield from (*kept, *command)
            command, kept = [], []
    yield from (*kept, *command)


def _continued(lines: Sequence[str], number: int, comment: str) -> list[str]:
    """Return the lines with a backslash before the line of this number (from 1), which begins with a setting.

    A name with a dot is no variable of the shell's, so that line is no command.
    """
    last = number - 1
    if last < 1 or not _SETTING.match(lines[last]) or not _ENDS_IN_A_WORD.fullmatch(lines[last - 1]):
        return list(lines)
    first = first_line(lines, last)
    words = arguments("\n".join(lines), first)
    if not words or words[0] in _TAKES_NO_SETTINGS or is_within_a_text(lines, last):
        return list(lines)
    joined = [*lines[: last - 1], f"{lines[last - 1].rstrip()} \\", *lines[last:]]
    indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    return [*joined[: first - 1], f"{indent}# {lines[last - 1].strip()}  {comment}", *joined[first - 1 :]]


def _goes_on(following: Sequence[str]) -> bool:
    """Return whether the next line that is not a comment begins with a setting instead of a command."""
    line = next((line for line in following if not _COMMENT.match(line)), "")
    return _SETTING.match(line) is not None or line.strip().startswith('"$@"')

"""Edits launch files line by line: shell scripts, `runtime_env` YAML, Dockerfiles.

Every other byte stays the same.

The replaced line is kept as a comment that ends in a marker, above the new one. Inside a command that
continues after a backslash no comment is possible, so it goes above the command's first line. The result is
parsed again, and must mean the same except for the edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.edit.launch_text import continues, first_line, launch_text
from verl_doctor.toolkit.sources.python.edit import CannotEdit

Syntax = Literal["shell script", "runtime_env", "Dockerfile"]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# What may follow the only line of a block. The shell allows no empty block.
_CLOSES = re.compile(r"(?:fi|elif|else|done|esac|;;|\}|\))(?![\w-])|(?:fi|elif|else|done|esac)$")


@dataclass(frozen=True)
class LineEdit:
    """Replace the only `old` in this line (from 1) by `new`; or comment the line out when `new` is None.

    `extends` means that the line also reads the variable, to extend its old value.
    """

    line: int
    old: str
    new: str | None = None
    extends: bool = False


def edited(source: bytes, path: str, syntax: Syntax, edits: Iterable[LineEdit], comment: str) -> bytes:
    """Apply edits, and keep the old lines as comments that end in `comment`.

    Raises CannotEdit, with the line, for unsafe edits.
    """
    from verl_doctor.toolkit.edit.line_proof import proven  # noqa: PLC0415 - the readers of what is edited, and only then

    text = launch_text(source, path)
    lines = _LINE.findall(text)
    todo = sorted(set(edits), key=lambda edit: edit.line)
    after: list[str] = []
    written = 0
    for edit in todo:
        named = len(_where(edit.old, lines[edit.line - 1])) if 0 < edit.line <= len(lines) else 0
        if named != 1 and not (named and edit.extends):
            raise CannotEdit(f"{path}:{edit.line}: this line does not contain {edit.old} exactly once")
        first = first_line(lines, edit.line)
        if first < written:
            raise CannotEdit(f"{path}:{edit.line}: two edits of one command")
        after += lines[written : first - 1]
        after += _replaced(lines, first, edit, syntax, comment, path)
        written = edit.line
    result = "".join([*after, *lines[written:]])
    if not proven(text, result, syntax, {edit.line: (edit.old, edit.new) for edit in todo}):
        raise CannotEdit(
            f"{path}:{todo[0].line}: the line cannot be edited without changing the code around it"
        )
    return result.encode()


def _replaced(
    lines: Sequence[str], first: int, edit: LineEdit, syntax: Syntax, comment: str, path: str
) -> list[str]:
    """Return a command's lines from its first to the edited one, with the edit, and the old line above."""
    old = lines[edit.line - 1]
    body, end = old.rstrip("\r\n"), old[len(old.rstrip("\r\n")) :]
    indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    kept = f"{indent}# {body.strip()}  {comment}{end or chr(10)}"
    if edit.new is None:
        if first != edit.line or continues(body):
            raise CannotEdit(f"{path}:{edit.line}: this line is part of a longer command; edit it by hand")
        missed = syntax == "shell script" and _is_missed(lines[edit.line :])
        return [kept, f"{indent}:  {comment}{end}"] if missed else [kept if end else kept.rstrip("\n")]
    position = _where(edit.old, body)[0]
    new = body[:position] + edit.new + body[position + len(edit.old) :]
    # After a backslash, and in a Dockerfile, a comment would be part of the command.
    alone = first == edit.line and not continues(body) and syntax != "Dockerfile"
    return [kept, *lines[first - 1 : edit.line - 1], f"{new}  {comment}{end}" if alone else new + end]


def _where(word: str, line: str) -> list[int]:
    return [found.start() for found in re.finditer(rf"(?<![\w.]){re.escape(word)}(?![\w.])", line)]


def _is_missed(following: Sequence[str]) -> bool:
    """Return whether a line without another effect than success was needed.

    It was needed as the only line of a block, or for its exit status.
    """
    texts = (line.strip() for line in following)
    after = next((line for line in texts if line and not line.startswith("#")), "")
    return not after or "$?" in after or _CLOSES.match(after) is not None

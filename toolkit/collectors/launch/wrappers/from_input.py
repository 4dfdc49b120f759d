"""The command that xargs or parallel starts with the words of its input."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace

from verl_doctor.toolkit.sources.shell.found import Argument, Lines

_XARGS = (
    "-I",
    "-n",
    "-P",
    "-L",
    "-s",
    "-d",
    "-a",
    "-E",
    "--arg-file",
    "--max-args",
    "--max-procs",
    "--max-lines",
    "--delimiter",
    "--replace",
)
_PARALLEL = ("-j", "--jobs", "--delay", "--timeout", "--joblog", "--results", "--tmpdir", "-S", "--sshlogin")


def with_input(words: list[Argument], name: str, stdin: Lines | None) -> list[Argument]:
    """Return the command that `xargs` or `parallel` starts, with the words from its input.

    They are unknown words if the input is unknown.
    """
    place, mark, read_elsewhere, limited = 1, "{}" if name == "parallel" else "", False, name == "parallel"
    while place < len(words) and (words[place].text or "").startswith("-"):
        text = words[place].text or ""
        has_value = text in (_XARGS if name == "xargs" else _PARALLEL)
        if name == "xargs":
            value = (words[place + 1].text or "") if has_value and place + 1 < len(words) else ""
            mark = (
                value or text.partition("=")[2] or text[2:] or "{}"
                if text.startswith(("-I", "-i", "--replace"))
                else mark
            )
            read_elsewhere = read_elsewhere or text.startswith(("-a", "--arg-file", "-d", "-0", "-E"))
            limited = limited or text.startswith(("-n", "-L", "--max-args", "--max-lines"))
        place += 2 if has_value else 1
    command = list(itertools.takewhile(lambda word: not (word.text or "").startswith(":::"), words[place:]))
    if not command or (name == "parallel" and len(command) == 1 and " " in (command[0].text or "")):
        return []
    if mark and any(mark in (word.text or "") for word in command):
        return [replace(word, text=None) if mark in (word.text or "") else word for word in command]
    unknown = Argument(None, words[0].path, words[0].line, f"the words that {name} reads")
    try:
        read = shlex.split(stdin.text) if stdin and not read_elsewhere and not mark and not limited else None
    except ValueError:
        read = None
    return [
        *command,
        *([unknown] if read is None else [replace(unknown, text=word, written=word) for word in read]),
    ]

"""What a Dockerfile sets and starts.

Format: docs.docker.com/reference/dockerfile (ENV, ARG, CMD, ENTRYPOINT, escape, here-documents).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.sources.shell.expand import text as expanded
from verl_doctor.toolkit.sources.shell.parse import words_of
from verl_doctor.toolkit.sources.shell.scope import Scope

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_HERE = re.compile(r"<<-?\s*[\"']?([A-Za-z_]\w*)[\"']?")
_CONTINUED = re.compile(r"[\\`]\n")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Env:
    """One variable of an `ENV` instruction. `value` is None if it depends on something unknown."""

    name: str
    value: str | None
    line: int


@dataclass(frozen=True)
class _Start:
    """A `CMD` or `ENTRYPOINT` as a command line of a shell.

    `is_list`: it is given as a JSON list of words.
    """

    command: str
    line: int
    is_list: bool


def variables_in(text: str) -> Iterator[Env]:
    """Yield what `ENV` sets in the last build stage and the stages before it, in order."""
    scope = Scope()
    for line, name, rest in _instructions(text):
        if name == "ARG":  # `docker build --build-arg` may override the default
            scope.state.variables[rest.partition("=")[0].strip()] = None
        elif name == "ENV":
            yield from _env(rest, line, scope)


def started_by(text: str) -> tuple[str, int]:
    """Return what a container of the image starts, as a shell command, and its line; "" and 0 for nothing.

    An ENTRYPOINT for the shell takes no arguments from CMD, and a stage inherits both from a stage that it is
    based on.
    """
    stages: dict[str, dict[str, _Start]] = {}
    parts: dict[str, _Start] = {}
    for line, name, rest in _instructions(text):
        if name == "FROM":
            base, *others = [word for word in rest.split() if not word.startswith("--")] or [""]
            parts = dict(stages.get(base.lower(), {}))
            if len(others) == 2 and others[0].lower() == "as":
                stages[others[1].lower()] = parts
        elif name in {"CMD", "ENTRYPOINT"}:
            parts[name] = _start(rest, line)
    entry = parts.get("ENTRYPOINT")
    command = parts.get("CMD") if entry is None or entry.is_list else None
    found = [part for part in (entry, command) if part is not None]
    return " ".join(part.command for part in found), found[-1].line if found else 0


def _start(rest: str, line: int) -> _Start:
    """Return what a `CMD` or `ENTRYPOINT` starts: a JSON list of words, or a line for the shell."""
    try:
        words = json.loads(_CONTINUED.sub("", rest))
    except ValueError:
        words = None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return _Start(shlex.join(words), line, is_list=True)
    return _Start(rest, line, is_list=False)


def _env(rest: str, line: int, scope: Scope) -> Iterator[Env]:
    first, _, old_style = rest.partition(" ")
    if "=" not in first:
        value = old_style.strip()
        if _NAME.fullmatch(first):
            quoted = words_of('"' + value.replace('"', '\\"') + '"')
            found = expanded(quoted[0].parts, scope) if len(quoted) == 1 else None
            scope.state.variables[first] = found
            yield Env(first, found, line)
        return
    given = []
    for word in words_of(rest):
        text = expanded(word.parts, scope)
        key = (text if text is not None else word.raw).partition("=")[0]
        if _NAME.fullmatch(key):
            given.append(Env(key, None if text is None else text.partition("=")[2], line + word.line - 1))
    for env in given:  # variables of the same instruction do not see each other
        scope.state.variables[env.name] = env.value
    yield from given


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, upper-case name and rest of each instruction, continued lines joined, comments removed."""
    lines = text.splitlines()
    escape = "`" if re.match(r"#\s*escape\s*=\s*`", text) else "\\"
    place = 0
    while place < len(lines):
        start = place
        if not lines[place].strip() or lines[place].lstrip().startswith("#"):
            place += 1
            continue
        joined: list[str] = []
        while place < len(lines):
            line = lines[place]
            place += 1
            if joined and (not line.strip() or line.lstrip().startswith("#")):
                joined.append("")
                continue
            continues = line.rstrip().endswith(escape)
            joined.append(line.rstrip().removesuffix(escape) if continues else line)
            if not continues:
                break
        match = _INSTRUCTION.match("\\\n".join(joined))
        if not match:
            continue
        name, rest = match.group(1).upper(), match.group(2) or ""
        if name in ("RUN", "COPY", "ADD"):
            for word in _HERE.findall(rest):
                while place < len(lines) and lines[place].strip() != word:
                    place += 1
                place += 1
        yield start + 1, name, rest

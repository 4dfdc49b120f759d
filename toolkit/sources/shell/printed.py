"""The output of a command substitution, for the few commands that only manipulate paths or print a file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from verl_doctor.toolkit.sources.shell.builtins import BUILTINS
from verl_doctor.toolkit.sources.shell.command_words import arguments
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import AndOr, Node, Pipeline, Simple
from verl_doctor.toolkit.sources.shell.walk import Walk
from verl_doctor.toolkit.system.secret import secrets_in

_READLINK = (
    ["readlink", "-f"],
    ["readlink", "-e"],
    ["readlink", "-m"],
    ["realpath", "-e"],
    ["realpath", "-m"],
)
_FINDS = (["which"], ["command", "-v"], ["type", "-P"])
_ELSEWHERE = re.compile(r"(?<!\d)1?>&")  # standard output goes to another stream

_MERGES = re.compile(r"2>&1|&>|\|&")  # errors go into the pipe, too
_FILTERS = frozenset({"paste", "sort", "uniq", "head", "tail", "tr"})
_OPTION = re.compile(r"-\S*|\d+")

_Word = TypeVar("_Word", str, str | None)


def printed(walk: Walk) -> Callable[[str], str | None]:
    """Return a function that computes a command substitution's output, for those few; None for the others."""

    def answer(script: str) -> str | None:
        scope = walk.scope
        state, kept = scope.state, (list(scope.unset), list(scope.needed), list(scope.changed))
        scope.state = state.copy()  # it runs in a subshell
        found = of(script)
        walk.files.substituted.append(script)
        scope.state, (scope.unset[:], scope.needed[:], scope.changed[:]) = state, kept
        return found

    def of(script: str) -> str | None:
        nodes = parse(script)
        cwd = walk.state.cwd
        if len(nodes) == 1 and isinstance(nodes[0], Pipeline) and not nodes[0].negated:
            return None if _MERGES.search(script) else through(nodes[0].commands)
        if len(nodes) == 1 and isinstance(nodes[0], AndOr):
            first, rest = nodes[0].first, nodes[0].rest
            if len(rest) != 1 or rest[0][0] != "&&" or not isinstance(first, Simple):
                return None
            moved = _without_dashes(
                [argument.text for argument in arguments(first.words, walk.scope, walk.path)]
            )
            if len(moved) != 2 or moved[0] != "cd" or moved[1] is None or not cwd:
                return None
            cwd = os.path.normpath(Path(cwd, moved[1]))
            if walk.presence.is_gone(cwd) and not walk.files.may_have_made(cwd):
                return None
            nodes = (rest[0][1],)
        if len(nodes) != 1 or not isinstance(nodes[0], Simple) or nodes[0].assignments:
            return None
        words = [argument.text for argument in arguments(nodes[0].words, walk.scope, walk.path)]
        if None in words or not words or words[0] in walk.state.functions:
            return None
        if nodes[0].written or _ELSEWHERE.search(script):
            return None
        known = _without_dashes([word or "" for word in words])
        if known[0] == "pwd" and all(word in ("-P", "-L") for word in known[1:]):
            return None if not cwd or ("-P" in known and os.path.realpath(cwd) != cwd) else cwd
        if known[0] == "dirname" and len(known) == 2:
            return str(Path(known[1]).parent)
        if (known[0] == "realpath" and len(known) == 2) or (known[:2] in _READLINK and len(known) == 3):
            path = os.path.normpath(Path(cwd, known[-1])) if cwd else ""
            return path if path and known[-1] and _is_where_it_seems(path, walk) else None
        if known[0] == "basename" and len(known) in (2, 3):
            name = Path(known[1]).name or ("/" if known[1].startswith("/") else "")
            shorter = name.removesuffix(known[2] if len(known) == 3 else "")
            return shorter or name
        if known[0] == "cat" and len(known) == 2 and cwd and not known[1].startswith("-"):
            path = os.path.normpath(Path(cwd, known[1]))
            text = None if walk.files.may_have_made(path) or walk.files.has_written(path) else walk.load(path)
            return None if text is None or any(secrets_in(text)) else text
        if known[:-1] in _FINDS:
            return "" if walk.programs.lacks_program(known[-1], BUILTINS) else walk.programs.place(known[-1])
        if known[0] == "date":
            return _time(known[1:])
        if known[0] == "echo" and not any(word.startswith("-") or "\\" in word for word in known[1:]):
            return " ".join(known[1:])
        return None

    def through(commands: Sequence[Node]) -> str | None:
        """Return what a pipe's last command prints if its first prints nothing, or files of a pattern."""
        text = listed(commands[0])
        for command in commands[1:]:
            words = known_words(command)
            text = None if text is None or words is None else _filtered(words, text)
        return text

    def known_words(node: Node) -> list[str] | None:
        if not isinstance(node, Simple) or node.assignments or node.input is not None:
            return None
        words = [argument.text for argument in arguments(node.words, walk.scope, walk.path)]
        if not words or None in words or words[0] in walk.state.functions:
            return None
        return [word or "" for word in words]

    def listed(node: Node) -> str | None:
        """Return what a program prints that this machine does not have, or `ls` of nothing: nothing."""
        words = known_words(node)
        if words is None or (
            isinstance(node, Simple) and any(target.raw != "/dev/null" for target in node.written)
        ):
            return None
        if words[0] != "ls":
            return "" if walk.programs.lacks_program(words[0], BUILTINS) else None
        names = [word for word in words[1:] if not word.startswith("-")]
        lacking = (
            walk.state.cwd and not walk.presence.is_of_machine(name) and walk.presence.has_no(name)
            for name in names
        )
        return "" if names and all(lacking) else None

    return answer


def _time(words: Sequence[str]) -> str | None:
    """Return what `date` prints now if it has a blank, at which bash splits it; None if its text may be any.

    Without a blank, nothing depends on it.
    """
    written = [word for word in words if word not in ("-u", "--utc")]
    form = written[0].removeprefix("+") if written else "%a %b %d %H:%M:%S UTC %Y"
    is_plain = len(written) < 2 and (not written or written[0].startswith("+"))
    if not is_plain or not re.fullmatch(r"(?:[^%]|%[aAbBdFHjmMSTyY])*", form) or " " not in form:
        return None
    return time.strftime(form)


def _filtered(words: Sequence[str], text: str) -> str | None:
    """Return what a filter prints for a text: a count of its lines, and nothing for nothing."""
    if words[0] == "wc" and list(words[1:]) in (["-l"], ["--lines"]):
        return f"{text.count(chr(10))}\n"
    reads_a_file = words[0] != "tr" and not all(map(_OPTION.fullmatch, words[1:]))
    return "" if not text and words[0] in _FILTERS and not reads_a_file else None


def _without_dashes(words: list[_Word]) -> list[_Word]:
    """The words without the first `--`, which ends the options."""
    return [word for place, word in enumerate(words) if word != "--" or "--" in words[:place]]


def _is_where_it_seems(path: str, walk: Walk) -> bool:
    """Whether a path exists on this machine and has no link in it, so that resolving it changes nothing."""
    return (
        walk.presence.is_there is not None and walk.presence.is_there(path) and os.path.realpath(path) == path
    )

"""What commands read and print, as far as the script determines it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from verl_doctor.toolkit.sources.shell.command_words import arguments
from verl_doctor.toolkit.sources.shell.expand import text
from verl_doctor.toolkit.sources.shell.found import Argument, Lines
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Node, Pipeline, Simple, Substitution
from verl_doctor.toolkit.sources.shell.walk import Walk


def read_by(walk: Walk, node: Simple) -> Lines | None:
    """Return what a command reads: a here-document, a here-string, a file or a pipe; None if unknown."""
    if node.input is None:
        return walk.piped
    found = None if node.input.parts is None else text(node.input.parts, walk.scope)
    if found is None or not node.input.is_file:
        return None if found is None else Lines(found, walk.path, node.input.line)
    return walk.files.text_now(found, walk.state.cwd)


def piped_by(walk: Walk, node: Node) -> Lines | None:
    """Return what a command writes to a pipe. Its words are expanded in a state that is lost."""
    if not isinstance(node, Simple) or not node.words:
        return None
    before, unset = walk.state, len(walk.scope.unset)
    walk.state = before.copy()
    printed = output_of(walk, node, arguments(node.words, walk.scope, walk.path))
    walk.state = before
    del walk.scope.unset[unset:]
    return printed


def output_of(walk: Walk, node: Simple, argv: Iterable[Argument]) -> Lines | None:
    """Return what `cat`, `echo` or `printf` prints; None for all else."""
    words = [argument.text for argument in argv]
    if node.assignments or not words:
        return None
    name, *rest = [word or "" for word in words]
    if None in words or name in walk.state.functions or any(word.startswith("-") for word in rest):
        return None
    if name == "cat" and len(rest) < 2:
        return walk.files.text_now(rest[0], walk.state.cwd) if rest else read_by(walk, node)
    if name == "echo" and not any("\\" in word for word in rest):
        return Lines(" ".join(rest) + "\n", walk.path, node.line)
    if name == "printf" and len(rest) == 1 and "%" not in rest[0] and not re.search(r"\\[^n]", rest[0]):
        return Lines(rest[0].replace("\\n", "\n"), walk.path, node.line)
    return None


def printed_by(walk: Walk, node: Simple, argv: Iterable[Argument]) -> Lines | None:
    """Return what a command writes to its only file, as the whole text of that."""
    return output_of(walk, node, argv) if len(node.written) == 1 and not node.appends else None


def failing(walk: Walk, assignments: Sequence[Assignment]) -> str:
    """Return the message of an `ls` of nothing that decides an assignment's status.

    Such as the status of `name=$(ls -d x* | tail -1)`; "" if it may succeed.
    """
    parts = assignments[-1].value if assignments and assignments[-1].items is None else ()
    scripts = [part.script for part in parts if isinstance(part, Substitution)]
    nodes = parse(scripts[0]) if len(scripts) == 1 else ()
    commands = nodes[0].commands if len(nodes) == 1 and isinstance(nodes[0], Pipeline) else nodes
    if len(nodes) != 1 or (len(commands) > 1 and walk.state.option("pipefail") is not True):
        return ""
    first = commands[0]
    if not isinstance(first, Simple) or first.assignments or not walk.state.cwd:
        return ""
    texts = [argument.text for argument in arguments(first.words, walk.scope, walk.path)]
    if not texts or None in texts or texts[0] != "ls" or "ls" in walk.state.functions:
        return ""
    kept = walk.files.substituted
    walk.files.substituted = [script for script in kept if script != scripts[0]]
    gone = walk.presence.first_missing(name for name in texts[1:] if name and not name.startswith("-"))
    walk.files.substituted = kept
    return f"ls: cannot access '{gone}': No such file or directory" if gone else ""

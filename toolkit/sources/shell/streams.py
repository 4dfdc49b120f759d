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
    """Return the message of an `ls` or `grep` that finds nothing and decides an assignment's status.

    Such as the status of `name=$(ls -d x* | tail -1)`; "" if it may succeed.
    """
    parts = assignments[-1].value if assignments and assignments[-1].items is None else ()
    scripts = [part.script for part in parts if isinstance(part, Substitution)]
    nodes = parse(scripts[0]) if len(scripts) == 1 else ()
    commands = nodes[0].commands if len(nodes) == 1 and isinstance(nodes[0], Pipeline) else nodes
    if len(nodes) != 1 or (len(commands) > 1 and walk.state.option("pipefail") is not True):
        return ""
    first, second = _known_words(walk, commands[0]), _known_words(walk, commands[1]) if commands[1:] else []
    if not first or not walk.state.cwd:
        return ""
    kept = walk.files.substituted
    walk.files.substituted = [script for script in kept if script != scripts[0]]
    names = [name for name in first[1:] if name and not name.startswith("-")]
    gone = walk.presence.first_missing(names) if first[0] == "ls" else ""
    wanted = _searched(second or first)
    if first[0] == "ls" and len(names) == 1 and len(wanted) == 1:
        finds_none = walk.presence.has_in_it(names[0], wanted[0]) is False
    else:
        content = walk.files.text_now(wanted[1], walk.state.cwd) if len(wanted) == 2 and not second else None
        finds_none = content is not None and wanted[0] not in content.text
    walk.files.substituted = kept
    if gone:
        return f"ls: cannot access '{gone}': No such file or directory"
    return f"grep: nothing matches {wanted[0]}" if finds_none else ""


def _known_words(walk: Walk, node: Node) -> list[str]:
    """Return the words of a command, [] if one is unknown, or if its program is a function."""
    if not isinstance(node, Simple) or node.assignments or node.input is not None:
        return []
    words = [argument.text for argument in arguments(node.words, walk.scope, walk.path)]
    known = [word for word in words if word is not None]
    return known if known and len(known) == len(words) and known[0] not in walk.state.functions else []


def _searched(words: Sequence[str]) -> list[str]:
    """Return the plain text that a `grep` searches for, and its files; [] for all else."""
    options = [word for word in words[1:] if word.startswith("-")]
    found = [word for word in words[1:] if not word.startswith("-")]
    is_plain = all(re.fullmatch("-[EFohHnw]+", option) for option in options)
    is_text = bool(found) and re.fullmatch(r"[\w/-]+", found[0]) is not None
    return found if words[0] == "grep" and is_plain and is_text else []

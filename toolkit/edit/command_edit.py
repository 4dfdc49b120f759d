"""Edits single commands of a shell script: guards them, joins an assignment, or adds a line before them.

Every other byte stays the same. The replaced line is kept as a comment above the command. The result is
parsed again, and must consist of the same commands except for the edited one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from verl_doctor.toolkit.edit.launch_text import first_line, last_line, launch_text
from verl_doctor.toolkit.edit.word_edit import form
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.shell.outcome import name_of
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Node,
    Simple,
    Text,
    Unread,
    Written,
    below,
    spaced_assignment,
)

_MAY_FAIL = frozenset({"((", "let", "read"})
_DURATION = re.compile(r"[\d.]+[smhd]?")
_ENDS = re.compile(r"[ \t]*(?:$|[ \t]#|;)")
NO_BREAK = "\u00a0"
"""A space that the shell does not take for one."""
_AFTER_BACKSLASH = re.compile(r"\\[ \t]+$")
_MARK = "verl_doctor_end_of_line"


def allowed_to_fail(source: bytes, path: str, line: int, comment: str) -> bytes:
    """Let a script with `set -e` go on after the command on this line: `|| true` follows it.

    It is one that returns 1 when it has done its work, or an assignment.
    """
    text = launch_text(source, path)
    found = _command(text, path, line, lambda node: not node.words or name_of(node) in _MAY_FAIL)
    true = _only(parse("true"))
    last = last_line(text.split("\n"), line)
    start = _offset(text, line)
    end = _offset(text, last) + len(text.split("\n")[last - 1])
    ends = [start + match.start() for match in _ENDS.finditer(text[start:end])]
    afters = (f"{text[:place]} || true{text[place:]}" for place in reversed(ends))
    return _proven(text, path, line, afters, AndOr(found, (("||", true),)), found, comment)


def only_if_it_exists(source: bytes, path: str, line: int, comment: str) -> bytes:
    """Let a script source a file only if it exists: `[ ! -e FILE ] ||` precedes the command."""
    text = launch_text(source, path)
    found = _command(text, path, line, lambda node: name_of(node) in {"source", "."})
    words = [word for word in found.words if isinstance(word, Written) and word.at >= 0]
    if len(words) < 2 or found.assignments:
        raise CannotEdit(f"{path}:{line}: this line does not source one file; edit it by hand")
    test = f"[ ! -e {words[1].raw} ]"
    after = f"{text[: words[0].at]}{test} || {text[words[0].at :]}"
    guarded = AndOr(_only(parse(test)), (("||", found),))
    return _proven(text, path, line, [after], guarded, found, comment)


def joined_assignment(source: bytes, path: str, line: int, name: str, comment: str) -> bytes:
    """Let a script assign to a variable that has blanks around its sign: `NAME = value`."""
    text = launch_text(source, path)
    found = _command(text, path, line, lambda node: spaced_assignment(node) == name)
    first = next(place for place, word in enumerate(found.words) if getattr(word, "raw", "") == name)
    words = [word for word in found.words[first:] if isinstance(word, Written) and word.at >= 0]
    raws = [word.raw for word in words]
    if first + len(words) != len(found.words) or len(words) - (raws[1] == "=") > 2:
        raise CannotEdit(f"{path}:{line}: this line does not assign one value to {name}; edit it by hand")
    new = "".join(raws)
    after = f"{text[: words[0].at]}{new}{text[words[-1].end :]}"
    lead = "".join(f"{word.raw} " for word in found.words[:first] if isinstance(word, Written))
    return _proven(text, path, line, [after], _only(parse(f"{lead}{new}")), found, comment)


def without_time_limit(source: bytes, path: str, line: int, comment: str) -> bytes:
    """Remove `timeout DURATION` in front of the command on this line."""
    text = launch_text(source, path)
    found = _command(text, path, line, lambda node: name_of(node) == "timeout")
    words = [word for word in found.words[:3] if isinstance(word, Written) and word.at >= 0]
    if len(words) < 3 or not _DURATION.fullmatch(words[1].raw):
        raise CannotEdit(f"{path}:{line}: timeout has options, or no plain time; edit it by hand")
    after = f"{text[: words[0].at]}{text[words[2].at :]}"
    return _proven(text, path, line, [after], replace(found, words=found.words[2:]), found, comment)


def with_aliases(source: bytes, path: str, name: str, comment: str) -> bytes:
    """Let bash expand aliases from the line on that defines this one."""
    text = launch_text(source, path)
    nodes = (node for node in parse(text) if isinstance(node, Simple) and name_of(node) == "alias")
    lines = [
        node.line
        for node in nodes
        if any(getattr(word, "raw", "").startswith(f"{name}=") for word in node.words[1:])
    ]
    if not lines:
        raise CannotEdit(f"{path}: the alias {name} is not defined on a line of its own; edit it by hand")
    return with_line_before(source, path, lines[0], "shopt -s expand_aliases", comment)


def with_plain_blanks(source: bytes, path: str, line: int, comment: str) -> bytes:
    """Write blanks in place of the non-breaking spaces on this line, none behind a backslash at its end."""
    text = launch_text(source, path)
    lines = text.split("\n")
    old = lines[line - 1]
    words = [node for node in below(parse(text)) if isinstance(node, Written) and node.line == line]
    quoted = (part for word in words for part in word.parts if isinstance(part, Text) and part.quoted)
    if NO_BREAK not in old or any(NO_BREAK in node.text and node.text != NO_BREAK for node in quoted):
        raise CannotEdit(f"{path}:{line}: a quoted text has a non-breaking space too; edit it by hand")
    new = old.replace(NO_BREAK, " ")
    lines[line - 1] = _AFTER_BACKSLASH.sub(r"\\", new)
    first = first_line([row.replace(NO_BREAK, " ") for row in text.split("\n")], line)
    indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    lines.insert(first - 1, f"{indent}# {old.strip()}  {comment}")
    after = "\n".join(lines)
    if has_broken_syntax(after) or is_within_a_text(text.split("\n"), line):
        raise CannotEdit(f"{path}:{line}: the line cannot be edited without changing the code around it")
    return after.encode()


def with_line_before(source: bytes, path: str, line: int, new: str, comment: str) -> bytes:
    """Add a line before the command on this line (from 1)."""
    text = launch_text(source, path)
    after = _with_row(text, text, line, f"{new}  {comment}")
    added = form(_only(parse(new)), {})
    before = _without(parse(text), added), _count(parse(text), added) + 1
    nodes = parse(after)
    lines = range(first_line(text.split("\n"), line) + 1, line + 2)
    if before != (_without(nodes, added), _count(nodes, added)) or not _precedes(nodes, added, lines):
        raise CannotEdit(f"{path}:{line}: no line can be added before this command; run this first: {new}")
    return after.encode()


def is_within_a_text(lines: Sequence[str], number: int) -> bool:
    """Return whether this line (from 1) ends within a quoted text, a here-document or `$(...)`."""
    marked = "\n".join([*lines[: number - 1], f"{lines[number - 1]}{_MARK}", *lines[number:]])
    nodes = below(parse(marked))
    texts = (getattr(node, "text", "") or getattr(node, "script", "") for node in nodes)
    return any(f"{_MARK}\n" in text for text in texts)


def has_broken_syntax(text: str) -> bool:
    """Return whether a part of a script cannot be read as a command."""
    return any(isinstance(node, Unread) for node in below(parse(text)))


def arguments(text: str, line: int) -> tuple[str, ...]:
    """Return the words of the command that begins on this line, as they are written."""
    found = [node for node in below(parse(text)) if isinstance(node, Simple) and node.line == line]
    return tuple(word.raw for node in found for word in node.words if isinstance(word, Written))


def _command(text: str, path: str, line: int, fits: Callable[[Simple], bool]) -> Simple:
    """Return the single command of this kind that begins on this line."""
    nodes = (node for node in below(parse(text)) if isinstance(node, Simple) and node.line == line)
    found = [node for node in nodes if fits(node)]
    if len(found) != 1:
        raise CannotEdit(f"{path}:{line}: the command does not begin there exactly once; edit it by hand")
    return found[0]


def _proven(
    text: str, path: str, line: int, afters: Iterable[str], new: Node, old: Simple, comment: str
) -> bytes:
    """Return the first text in which the new command has taken the place of the old, and nothing else."""
    wanted = form(_replaced(parse(text), old, new), {})
    for after in afters:
        if form(parse(after), {}) == wanted:
            replaced = text.split("\n")[line - 1].strip()
            return _with_row(after, text, line, f"# {replaced}  {comment}").encode()
    raise CannotEdit(f"{path}:{line}: the command cannot be edited without changing the code around it")


def _with_row(text: str, before: str, line: int, row: str) -> str:
    """Add a row above the command that begins on this line of the text `before`, indented as it is there."""
    lines, rows = text.split("\n"), before.split("\n")
    first = first_line(rows, line)
    old = rows[first - 1]
    lines.insert(first - 1, f"{old[: len(old) - len(old.lstrip())]}{row}")
    return "\n".join(lines)


def _replaced(node: Any, old: Simple, new: Node) -> Any:
    """Return a tree in which a command has another in its place."""
    if isinstance(node, Simple) and (node, node.line) == (old, old.line):
        return new
    if isinstance(node, tuple):
        return tuple(_replaced(part, old, new) for part in node)
    if is_dataclass(node) and not isinstance(node, type):
        changed = {field.name: _replaced(getattr(node, field.name), old, new) for field in fields(node)}
        return replace(node, **changed)
    return node


def _without(node: Any, added: Any) -> Any:
    """Return the form of a tree without the commands that have this form."""
    return form(_filtered(node, lambda part: form(part, {}) != added), {})


def _count(node: Any, added: Any) -> int:
    return sum(isinstance(part, Simple) and form(part, {}) == added for part in below(node))


def _precedes(node: Any, added: Any, lines: range) -> bool:
    """Return whether an added command stands right before the one on these lines, or before its block."""
    if not isinstance(node, tuple):
        parts = (getattr(node, field.name) for field in fields(node)) if is_dataclass(node) else ()
        return any(_precedes(part, added, lines) for part in parts)
    follows = (after for before, after in itertools.pairwise(node) if form(before, {}) == added)
    simple = (part for after in follows for part in below(after) if isinstance(part, Simple))
    return any(part.line in lines for part in simple) or any(_precedes(part, added, lines) for part in node)


def _filtered(node: Any, keeps: Callable[[Simple], bool]) -> Any:
    if isinstance(node, tuple):
        left = (part for part in node if not isinstance(part, Simple) or keeps(part))
        return tuple(_filtered(part, keeps) for part in left)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(
            node, **{field.name: _filtered(getattr(node, field.name), keeps) for field in fields(node)}
        )
    return node


def _only(nodes: tuple[Node, ...]) -> Any:
    (node,) = nodes
    return node


def _offset(text: str, line: int) -> int:
    """Return where a line (from 1) begins."""
    return sum(len(row) + 1 for row in text.split("\n")[: line - 1])

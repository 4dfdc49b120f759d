"""Writing a variant: a shell script in which some overrides of verl's configuration have other values, and every other byte stays.

An override that stands in the script is changed where it stands; others are added at the end of the command, where the last
value of a key counts. Replaced lines stay as comments that end in a marker. A comment cannot stand inside a command that goes
on after a backslash: there it stands above the command's first line.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.fact_launch import Command, Word
from verl_doctor.toolkit.py_edit import CannotEdit
from verl_doctor.toolkit.shell_parse import parse
from verl_doctor.toolkit.shell_syntax import Node, Simple, Written, below
from verl_doctor.toolkit.variant import Wish

_OVERRIDE = re.compile(r"[\"']?(\+{0,2}[A-Za-z_][\w.]*)=")
_ARGUMENTS = re.compile(r"[\"']?\$(?:[@*]|\{[@*][^}]*\})[\"']?")  # "$@": what the script is called with
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PLAIN = re.compile(r"[\w/\-+.$%*@?|]+", re.ASCII)  # what Hydra takes without quotes
_WIDTH = 100  # columns of a comment
_MOST_CALLS = 20


@dataclass(frozen=True)
class Order:
    """What is to change in one command of the script."""

    command: Command
    wishes: tuple[Wish, ...]


@dataclass(frozen=True)
class Draft:
    """A text of a variant that is to be proven. `replaced` are the raw words at their places, `added` those behind a place."""

    text: str
    replaced: Mapping[int, str]
    added: Mapping[int, tuple[str, ...]]


@dataclass
class _Edits:
    """By place in the old text: words that replace another, and words that are added behind one."""

    source: str
    replaced: dict[int, tuple[Written, str]] = field(default_factory=dict)
    added: dict[int, tuple[Simple, Written, list[str]]] = field(default_factory=dict)

    def replace(self, word: Written, new: str) -> None:
        if self.replaced.setdefault(word.at, (word, new))[1] != new:
            raise CannotEdit(f"line {word.line}: two commands that need different values share this line")

    def add(self, call: Simple, anchor: Written, words: Sequence[str]) -> None:
        there = self.added.setdefault(anchor.end, (call, anchor, []))[2]
        there += [word for word in words if word not in there]


def drafts(
    source: str, path: str, orders: Sequence[Order], comment: str, head: str, *, last: bool
) -> Iterator[Draft]:
    """Variants of a script, the best first. Which of them says what it should is for a proof to tell.

    The first changes each override where it stands. The others hand all of them to one command that the script calls, for a
    script whose training command stands in another file. With `last` what is added stands behind the script's own arguments.
    Raises CannotEdit when there is no place for them.
    """
    tree = parse(source)
    words = [part for part in below(tree) if isinstance(part, Written) and part.at >= 0]
    calls = [part for part in below(tree) if isinstance(part, Simple) and _is_call(part)]
    try:
        edits = _Edits(source)
        for order in orders:
            _edit(edits, order, path, words, calls, last=last)
        yield _draft(edits, comment, head)
        problem = None
    except CannotEdit as reason:
        problem = reason
    if len(orders) == 1:
        added = [_override(wish) for wish in orders[0].wishes]
        for call in calls[:_MOST_CALLS]:
            edits = _Edits(source)
            edits.add(call, _anchor(call, last=last), added)
            yield _draft(edits, comment, head)
    if problem is not None:
        raise problem


def as_written(value: Any, quote: str = '"') -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(_text(str(one), quote) for one in value)}]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else _text(value, quote)
    return json.dumps(value)


def _override(wish: Wish) -> str:
    """A word of the command, as the shell wants it."""
    return f"{wish.sign}{wish.key}={shlex.quote(as_written(wish.value))}"


def _text(value: str, quote: str) -> str:
    return f"{quote}{value}{quote}"


def _is_call(node: Simple) -> bool:
    return bool(node.words) and all(isinstance(word, Written) and word.at >= 0 for word in node.words)


def _edit(
    edits: _Edits, order: Order, path: str, words: Sequence[Written], calls: Sequence[Simple], *, last: bool
) -> None:
    """Change what stands in the script, and add what does not to the command."""
    added = []
    for wish in order.wishes:
        place = _place(order.command.words, wish.key, path, words)
        if place is None:
            added.append(_override(wish))
        else:
            edits.replace(place, _rewritten(place.raw, wish.value))
    if added:
        call = _call(order.command, path, calls)
        edits.add(call, _anchor(call, last=last), added)


def _place(given: Sequence[Word], key: str, path: str, words: Sequence[Written]) -> Written | None:
    """The one word of the script that gives a key its value; None when it stands elsewhere, or may not be there."""
    of_key = [word for word in given if _key(word.text if word.text is not None else word.written) == key]
    if not of_key or of_key[-1].conditional or of_key[-1].path != path:
        return None
    found = [word for word in words if word.line == of_key[-1].line and _key(word.raw) == key]
    return found[0] if len(found) == 1 and "\n" not in found[0].raw else None


def _key(text: str) -> str:
    match = _OVERRIDE.match(text)
    return match[1].lstrip("+") if match else ""


def _rewritten(raw: str, value: Any) -> str:
    """The word with another value behind its `=`, in the same quotes when they are around the whole word."""
    key = raw.partition("=")[0]
    if key[0] in "\"'":
        return f"{key}={as_written(value, chr(39) if key[0] == chr(34) else chr(34))}{key[0]}"
    return f"{key}={shlex.quote(as_written(value))}"


def _call(command: Command, path: str, calls: Sequence[Simple]) -> Simple:
    """The command in the script: the one that has all the words which its overrides were written as."""
    if command.path == path:
        there = {word.raw for call in calls for word in call.words if isinstance(word, Written)}
        written = list(dict.fromkeys(word.written for word in command.words if word.written in there))
        fitting = [call for call in calls if _has(call, written or [command.module])]
        on_line = [call for call in fitting if call.line == command.line] or fitting
        if len(on_line) == 1:
            return on_line[0]
    raise CannotEdit(f"{command.path}:{command.line}: the command that starts verl is not written out there")


def _has(call: Simple, written: Sequence[str]) -> bool:
    """Whether these words stand in the command, in this order."""
    there = iter(word.raw for word in call.words if isinstance(word, Written))
    return all(word in there for word in written)


def _anchor(call: Simple, *, last: bool) -> Written:
    """The word behind which others may be added: the last one before the script's own arguments."""
    words = [word for word in call.words if isinstance(word, Written)]
    while not last and len(words) > 1 and _ARGUMENTS.fullmatch(words[-1].raw):
        words.pop()
    return words[-1]


def _draft(edits: _Edits, comment: str, head: str) -> Draft:
    lines = _LINE.findall(edits.source)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def number(at: int) -> int:
        return next(index for index, start in enumerate(starts[1:]) if at < start or start == starts[-1])

    pieces: dict[int, list[tuple[int, int, str]]] = {}
    notes: dict[int, list[str]] = {}
    for at, (word, new) in sorted(edits.replaced.items()):
        here = number(at)
        if here not in pieces:
            notes.setdefault(_first(lines, here), []).append(lines[here].strip())
        pieces.setdefault(here, []).append((at - starts[here], word.end - starts[here], new))
    for at, (call, anchor, words) in sorted(edits.added.items()):
        here = number(anchor.at + len(anchor.raw) - 1)
        pieces.setdefault(here, []).append(
            (at - starts[here],) * 2 + (_joined(edits.source, call, anchor, words),)
        )
        first = _first(lines, number(call.words[0].at if isinstance(call.words[0], Written) else at))
        notes.setdefault(first, []).extend(
            textwrap.wrap(f"added: {' '.join(words)}", _WIDTH, break_long_words=False, break_on_hyphens=False)
        )
    after: list[str] = []
    for index, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        after += [f"{indent}# {note}  {comment}\n" for note in notes.get(index, ())]
        after.append(_changed(line, pieces[index], comment) if index in pieces else line)
    at = 1 if lines and lines[0].startswith("#!") else 0
    text = "".join([*after[:at], f"# {head}  {comment}\n", *after[at:]])
    return Draft(
        text,
        {at: new for at, (_, new) in edits.replaced.items()},
        {at: tuple(words) for at, (_, _, words) in edits.added.items()},
    )


def _changed(line: str, pieces: Sequence[tuple[int, int, str]], comment: str) -> str:
    for start, end, new in sorted(pieces, reverse=True):
        line = line[:start] + new + line[end:]
    body = line.rstrip("\n")
    return line if _CONTINUED.search(body) else f"{body}  {comment}{line[len(body) :]}"


def _joined(source: str, call: Simple, anchor: Written, words: Sequence[str]) -> str:
    """The words in the way in which the command is written: each on a line of its own, or behind each other."""
    begins = source.rfind("\n", 0, anchor.at) + 1
    indent = source[begins : anchor.at]
    first = call.words[0]
    alone = not indent.strip() and isinstance(first, Written) and first.at < begins
    return "".join(f" \\\n{indent}{word}" if alone else f" {word}" for word in words)


def _first(lines: Sequence[str], index: int) -> int:
    """The first line of a command that goes on after backslashes."""
    while index > 0 and _CONTINUED.search(lines[index - 1].rstrip("\n")):
        index -= 1
    return index


def form(node: Any, draft: Draft | None = None) -> Any:
    """A tree without line numbers and places; with `draft`, as it should be after it."""
    if isinstance(node, Written):
        return node.raw if draft is None else draft.replaced.get(node.at, node.raw)
    if isinstance(node, Simple):
        words = [form(word, draft) for word in node.words]
        for place, word in reversed(list(enumerate(node.words))):
            if draft is not None and isinstance(word, Written):
                words[place + 1 : place + 1] = draft.added.get(word.end, ())
        return ("Simple", tuple(words), tuple(form(one, draft) for one in node.assignments))
    if isinstance(node, tuple):
        return tuple(form(part, draft) for part in node)
    if hasattr(node, "__dataclass_fields__"):
        return (
            type(node).__name__,
            *(
                form(getattr(node, name), draft)
                for name in node.__dataclass_fields__
                if name not in ("line", "at")
            ),
        )
    return node


def same_but_for(source: str, draft: Draft) -> bool:
    """Whether the shell reads the same commands in both texts but for the words that were meant."""
    before: tuple[Node, ...] = parse(source)
    return bool(form(before, draft) == form(parse(draft.text)))

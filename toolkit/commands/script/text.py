"""Write a variant of a shell script: some overrides of verl's configuration change, all other bytes stay.

Overrides in the script are changed in place; others are added at the end of the command, because the last
value of a key counts. Replaced lines stay as comments that end in a marker. Comments cannot stand inside a
command continued by backslashes, so they go above its first line.
"""

from __future__ import annotations

import bisect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.collectors.launch.launch import Command
from verl_doctor.toolkit.commands.script.place import Call, Place, Script, read
from verl_doctor.toolkit.commands.script.value import override
from verl_doctor.toolkit.commands.script.variant import ValueChange
from verl_doctor.toolkit.edit.launch_text import continues, first_line
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import Simple, Written

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WIDTH = 100  # columns of a comment
_MOST_CALLS = 20


@dataclass(frozen=True)
class Order:
    """The changes to one command of the script."""

    command: Command
    changes: tuple[ValueChange, ...]


@dataclass(frozen=True)
class Draft:
    """A draft of a variant, not yet verified.

    `replaced` are the raw words by place, `added` those after a place.
    """

    text: str
    replaced: Mapping[int, str]
    added: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class _Piece:
    """A replacement between two places of the old text, and the word that it concerns."""

    start: int
    end: int
    text: str
    word: Place


@dataclass
class _Edits:
    """Edits by place in the old text: replaced words, and words added after a word of a command."""

    source: str
    replaced: dict[int, tuple[Place, str]] = field(default_factory=dict)
    added: dict[int, tuple[Call, Place, list[str]]] = field(default_factory=dict)

    def replace(self, word: Place, new: str) -> None:
        if self.replaced.setdefault(word.written.at, (word, new))[1] != new:
            raise CannotEdit(
                f"line {word.written.line}: two commands that need different values share this line"
            )

    def add(self, call: Call, changes: Sequence[ValueChange], *, last: bool) -> None:
        anchor = call.anchor(last=last)
        words_added = self.added.setdefault(anchor.written.end, (call, anchor, []))[2]
        words = [override(change, nested=anchor.nested) for change in changes]
        words_added += [word for word in words if word not in words_added]

    def pieces(self) -> list[_Piece]:
        """Return all edits from the last to the first, so that earlier places stay valid."""
        found = [_Piece(at, word.written.end, new, word) for at, (word, new) in self.replaced.items()]
        for at, (call, anchor, words) in self.added.items():
            found.append(_Piece(at, at, _joined(self.source, call, anchor, words), anchor))
        return sorted(found, key=lambda piece: (piece.start, piece.end), reverse=True)


def drafts(
    source: str, path: str, orders: Sequence[Order], comment: str, head: str, *, last: bool
) -> Iterator[Draft]:
    """Yield variants of a script, the best first. Verification decides which of them is right.

    The first changes each override in place. The others pass all of them to one command of the script, for
    scripts that start the training command in another file. With `last` they are added after the script's own
    arguments. Raises CannotEdit if there is no place for them.
    """
    script = read(source, path)
    try:
        edits = _Edits(source)
        for order in orders:
            _edit(edits, order, script, last=last)
        yield _draft(edits, comment, head)
        problem = None
    except CannotEdit as reason:
        problem = reason
    if len(orders) == 1:
        for call in script.calls[:_MOST_CALLS]:
            edits = _Edits(source)
            edits.add(call, orders[0].changes, last=last)
            yield _draft(edits, comment, head)
    if problem is not None:
        raise problem


def _edit(edits: _Edits, order: Order, script: Script, *, last: bool) -> None:
    """Change the overrides in the script, and add the others to the command."""
    added = []
    for change in order.changes:
        place = script.place(order.command.words, change.key)
        if place is None:
            added.append(change)
        else:
            edits.replace(place, place.with_value(change.value))
    if added:
        edits.add(script.call(order.command), added, last=last)


@dataclass(frozen=True)
class _Lines:
    """The lines of a text with their ends, and the offset of each."""

    lines: list[str]
    starts: list[int]

    @classmethod
    def of(cls, source: str) -> _Lines:
        lines = _LINE.findall(source)
        return cls(lines, list(itertools.accumulate(map(len, lines), initial=0)))

    def number(self, at: int) -> int:
        """Return the line of a place, counted from 0."""
        return bisect.bisect_right(self.starts, at, hi=len(self.lines)) - 1

    def first(self, at: int) -> int:
        """Return the first line of the command at a place, which may be continued by backslashes."""
        return first_line(self.lines, self.number(at) + 1) - 1


def _draft(edits: _Edits, comment: str, head: str) -> Draft:
    lines = _Lines.of(edits.source)
    after = _edited(edits, lines, comment)
    for index, notes in _notes(edits, lines).items():
        line = lines.lines[index]
        indent = line[: len(line) - len(line.lstrip())]
        after[index] = "".join(f"{indent}# {note}  {comment}\n" for note in notes) + after[index]
    after.insert(1 if edits.source.startswith("#!") and len(after) > 1 else 0, f"# {head}  {comment}\n")
    added = {at: tuple(words) for at, (_, anchor, words) in edits.added.items() if not anchor.nested}
    return Draft("".join(after), _replaced(edits), added)


def _edited(edits: _Edits, lines: _Lines, comment: str) -> list[str]:
    """Return all lines, the changed ones with a marker where a comment is possible.

    No comment is possible before a continuation, nor in a string.
    """
    after = list(lines.lines)
    unmarked: dict[int, bool] = {}
    for piece in edits.pieces():
        here = lines.number(piece.word.written.end - 1)
        line, begins = after[here], lines.starts[here]
        after[here] = line[: piece.start - begins] + piece.text + line[piece.end - begins :]
        unmarked[here] = unmarked.get(here, False) or lines.number(piece.word.top.end - 1) != here
    for here, in_string in unmarked.items():
        body = after[here].rstrip("\n")
        if not in_string and not continues(body):
            after[here] = f"{body}  {comment}{after[here][len(body) :]}"
    return after


def _notes(edits: _Edits, lines: _Lines) -> dict[int, list[str]]:
    """Return the comments above a line: the lines that were changed, and what was added."""
    found: dict[int, list[str]] = {}
    for at, (word, _) in sorted(edits.replaced.items()):
        kept = found.setdefault(lines.first(word.top.at), [])
        line = lines.lines[lines.number(at)].strip()
        kept += [line] if line not in kept else []
    for _, (call, _, words) in sorted(edits.added.items()):
        text = f"added: {' '.join(words)}"
        rows = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
        found.setdefault(lines.first(call.words[0].top.at), []).extend(rows)
    return found


def _replaced(edits: _Edits) -> dict[int, str]:
    """Return the words of the script that change, including strings with edits inside."""
    found: dict[int, str] = {}
    for piece in edits.pieces():
        if piece.word.nested or piece.start < piece.end:
            at = piece.word.top.at
            raw = found.get(at, piece.word.top.raw)
            found[at] = raw[: piece.start - at] + piece.text + raw[piece.end - at :]
    return found


def _joined(source: str, call: Call, anchor: Place, words: Sequence[str]) -> str:
    """Join the words as the command is written: one per line, or all on one line."""
    begins = source.rfind("\n", 0, anchor.written.at) + 1
    indent = source[begins : anchor.written.at]
    alone = not indent.strip() and call.words[0].written.at < begins
    return "".join(f" \\\n{indent}{word}" if alone else f" {word}" for word in words)


def form(node: Any, draft: Draft | None = None) -> Any:
    """Return a tree without line numbers and places; with `draft`, as it should be afterwards."""
    if isinstance(node, Written):
        return node.raw if draft is None else draft.replaced.get(node.at, node.raw)
    if isinstance(node, Simple):
        words = [form(word, draft) for word in node.words]
        for place, word in reversed(list(enumerate(node.words))):
            if draft is not None and isinstance(word, Written):
                words[place + 1 : place + 1] = draft.added.get(word.end, ())
        return ("Simple", tuple(words), tuple(form(assignment, draft) for assignment in node.assignments))
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
    """Return whether the shell reads the same commands in both texts, apart from the intended words."""
    before = parse(source)
    return bool(form(before, draft) == form(parse(draft.text)))

"""Writing a variant: a shell script in which some overrides of verl's configuration have other values, and every other byte stays.

An override that stands in the script is changed where it stands; others are added at the end of the command, where the last
value of a key counts. Replaced lines stay as comments that end in a marker. A comment cannot stand inside a command that goes
on after a backslash: there it stands above the command's first line.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_doctor.toolkit.fact_launch import Command, Word
from verl_doctor.toolkit.py_edit import CannotEdit
from verl_doctor.toolkit.shell_parse import parse
from verl_doctor.toolkit.shell_syntax import Node, Simple, Written, below
from verl_doctor.toolkit.variant import Wish

_QUOTES = "'\""
_OVERRIDE = re.compile(r"[\"']?(\+{0,2}[A-Za-z_][\w.]*)=")
_ARGUMENTS = re.compile(r"[\"']?\$(?:[@*]|\{[@*][^}]*\})[\"']?")  # "$@": what the script is called with
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PLAIN = re.compile(r"[\w/\-+.$%*@?|]+", re.ASCII)  # what Hydra takes without quotes
_SPECIAL = re.compile(r"([^\w@%+=:,./-])", re.ASCII)
_STRING = re.compile(r"(['\"]).*\s.*=.*\1", re.DOTALL)  # may hold a command with overrides
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


@dataclass(frozen=True)
class _Word:
    """A word of a command. `top` is the word of the script in which it stands: itself, or a string that another shell is to run."""

    written: Written
    top: Written

    @property
    def nested(self) -> bool:
        """Whether it stands in such a string."""
        return self.top is not self.written


@dataclass(frozen=True)
class _Call:
    """A command in the script, or in a string of it."""

    words: tuple[_Word, ...]

    @property
    def raws(self) -> list[str]:
        """Its words as they are written."""
        return [word.written.raw for word in self.words]

    def anchor(self, *, last: bool) -> _Word:
        """The word behind which others may be added: the last one before the script's own arguments, or really the last."""
        words = list(self.words)
        while not last and len(words) > 1 and _ARGUMENTS.fullmatch(words[-1].written.raw):
            words.pop()
        return words[-1]


@dataclass
class _Edits:
    """By place in the old text: words that replace another, and words that are added behind one of a command."""

    source: str
    replaced: dict[int, tuple[_Word, str]] = field(default_factory=dict)
    added: dict[int, tuple[_Call, _Word, list[str]]] = field(default_factory=dict)

    def replace(self, word: _Word, new: str) -> None:
        if self.replaced.setdefault(word.written.at, (word, new))[1] != new:
            raise CannotEdit(
                f"line {word.written.line}: two commands that need different values share this line"
            )

    def add(self, call: _Call, wishes: Sequence[Wish], *, last: bool) -> None:
        anchor = call.anchor(last=last)
        there = self.added.setdefault(anchor.written.end, (call, anchor, []))[2]
        words = [_override(wish, nested=anchor.nested) for wish in wishes]
        there += [word for word in words if word not in there]

    def pieces(self) -> Iterator[tuple[int, int, str, _Word]]:
        """What is to stand from one place to another, and the word that it concerns."""
        for at, (word, new) in self.replaced.items():
            yield at, word.written.end, new, word
        for at, (call, anchor, words) in self.added.items():
            yield at, at, _joined(self.source, call, anchor, words), anchor


def drafts(
    source: str, path: str, orders: Sequence[Order], comment: str, head: str, *, last: bool
) -> Iterator[Draft]:
    """Variants of a script, the best first. Which of them says what it should is for a proof to tell.

    The first changes each override where it stands. The others hand all of them to one command that the script calls, for a
    script whose training command stands in another file. With `last` what is added stands behind the script's own arguments.
    Raises CannotEdit when there is no place for them.
    """
    words, calls = _read(source)
    try:
        edits = _Edits(source)
        for order in orders:
            _edit(edits, order, path, words, calls, last=last)
        yield _draft(edits, comment, head)
        problem = None
    except CannotEdit as reason:
        problem = reason
    if len(orders) == 1:
        for call in calls[:_MOST_CALLS]:
            edits = _Edits(source)
            edits.add(call, orders[0].wishes, last=last)
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


def _override(wish: Wish, *, nested: bool) -> str:
    """A word of the command, as the shell wants it."""
    return f"{wish.sign}{wish.key}={_in_shell(wish.value, nested=nested)}"


def _in_shell(value: Any, *, nested: bool) -> str:
    """A value as the shell wants it. Quotes would end a string around it: there, what means something to a shell is escaped."""
    return _SPECIAL.sub(r"\\\1", as_written(value, "")) if nested else shlex.quote(as_written(value))


def _text(value: str, quote: str) -> str:
    return f"{quote}{value}{quote}"


def _read(source: str) -> tuple[list[_Word], list[_Call]]:
    """The words and commands of a script, and of the strings in it that other shells may be given to run."""
    words: list[_Word] = []
    calls: list[_Call] = []
    for part in below(parse(source)):
        if isinstance(part, Simple) and part.words:
            own = [_Word(word, word) for word in part.words if isinstance(word, Written) and word.at >= 0]
            calls += [_Call(tuple(own))] if len(own) == len(part.words) else []
        elif isinstance(part, Written) and part.at >= 0:
            words.append(_Word(part, part))
            for inner in _commands_in(part):
                calls.append(inner)
                words += inner.words
    return words, calls


def _commands_in(top: Written) -> Iterator[_Call]:
    """The commands in a string."""
    if not _STRING.fullmatch(top.raw):
        return
    for part in below(parse(top.raw[1:-1], top.line)):
        if isinstance(part, Simple) and part.words and all(isinstance(word, Written) for word in part.words):
            inner = [word for word in part.words if isinstance(word, Written)]
            yield _Call(tuple(_Word(replace(word, at=word.at + top.at + 1), top) for word in inner))


def _edit(
    edits: _Edits, order: Order, path: str, words: Sequence[_Word], calls: Sequence[_Call], *, last: bool
) -> None:
    """Change what stands in the script, and add what does not to the command."""
    added = []
    for wish in order.wishes:
        place = _place(order.command.words, wish.key, path, words)
        if place is None:
            added.append(wish)
        else:
            edits.replace(place, _rewritten(place, wish.value))
    if added:
        edits.add(_call(order.command, path, calls), added, last=last)


def _place(given: Sequence[Word], key: str, path: str, words: Sequence[_Word]) -> _Word | None:
    """The one word of the script that gives a key its value; None when it stands elsewhere, or may not be there."""
    of_key = [word for word in given if _key(word.text if word.text is not None else word.written) == key]
    if not of_key or of_key[-1].conditional or of_key[-1].path != path:
        return None
    found = [word for word in words if _key(word.written.raw) == key]
    on_line = [word for word in found if word.written.line == of_key[-1].line]
    chosen = on_line or [word for word in found if word.nested]  # lines are not counted in a string
    return chosen[0] if len(chosen) == 1 and "\n" not in chosen[0].written.raw else None


def _key(text: str) -> str:
    match = _OVERRIDE.match(text)
    return match[1].lstrip("+") if match else ""


def _rewritten(word: _Word, value: Any) -> str:
    """The word with another value behind its `=`, in the same quotes when they are around the whole word."""
    key = word.written.raw.partition("=")[0]
    if word.nested:
        return f"{key.lstrip(_QUOTES)}={_in_shell(value, nested=True)}"
    if key[0] in _QUOTES:
        return f"{key}={as_written(value, _QUOTES.replace(key[0], ''))}{key[0]}"
    return f"{key}={_in_shell(value, nested=False)}"


def _call(command: Command, path: str, calls: Sequence[_Call]) -> _Call:
    """The command in the script: the one that has all the words which its overrides were written as."""
    if command.path == path:
        there = {raw for call in calls for raw in call.raws}
        written = list(dict.fromkeys(word.written for word in command.words if word.written in there))
        fitting = [call for call in calls if _has(call, written or [command.module])]
        on_line = [call for call in fitting if call.words[0].written.line == command.line] or fitting
        if len(on_line) == 1:
            return on_line[0]
    raise CannotEdit(f"{command.path}:{command.line}: the command that starts verl is not written out there")


def _has(call: _Call, written: Sequence[str]) -> bool:
    """Whether these words stand in the command, in this order."""
    there = iter(call.raws)
    return all(word in there for word in written)


def _draft(edits: _Edits, comment: str, head: str) -> Draft:
    lines = _LINE.findall(edits.source)
    starts = list(itertools.accumulate(map(len, lines), initial=0))

    def number(at: int) -> int:
        return bisect.bisect_right(starts, at, hi=len(lines)) - 1

    notes: dict[int, list[str]] = {}
    for at, (word, _) in sorted(edits.replaced.items()):
        kept = notes.setdefault(_first(lines, number(word.top.at)), [])
        kept += [line for line in [lines[number(at)].strip()] if line not in kept]
    for _, (call, _, words) in sorted(edits.added.items()):
        said = textwrap.wrap(
            f"added: {' '.join(words)}", _WIDTH, break_long_words=False, break_on_hyphens=False
        )
        notes.setdefault(_first(lines, number(call.words[0].top.at)), []).extend(said)
    after = list(lines)
    closed: dict[int, bool] = {}
    for start, end, new, word in sorted(edits.pieces(), key=lambda piece: piece[:2], reverse=True):
        here = number(word.written.end - 1)
        after[here] = after[here][: start - starts[here]] + new + after[here][end - starts[here] :]
        closed[here] = closed.get(here, True) and number(word.top.end - 1) == here
    for here, may_be_marked in closed.items():
        body = after[here].rstrip("\n")
        if may_be_marked and not _CONTINUED.search(body):
            after[here] = f"{body}  {comment}{after[here][len(body) :]}"
    for here, said in notes.items():
        indent = lines[here][: len(lines[here]) - len(lines[here].lstrip())]
        after[here] = "".join(f"{indent}# {note}  {comment}\n" for note in said) + after[here]
    after.insert(1 if edits.source.startswith("#!") and len(lines) > 1 else 0, f"# {head}  {comment}\n")
    return Draft("".join(after), _replaced(edits), _added(edits))


def _replaced(edits: _Edits) -> dict[int, str]:
    """The words of the script that are others afterwards, strings with what is changed in them."""
    found: dict[int, str] = {}
    for start, end, new, word in sorted(edits.pieces(), key=lambda piece: piece[:2], reverse=True):
        if word.nested or start < end:
            at = word.top.at
            raw = found.get(at, word.top.raw)
            found[at] = raw[: start - at] + new + raw[end - at :]
    return found


def _added(edits: _Edits) -> dict[int, tuple[str, ...]]:
    """The words that are added to commands of the script itself."""
    return {at: tuple(words) for at, (_, anchor, words) in edits.added.items() if not anchor.nested}


def _joined(source: str, call: _Call, anchor: _Word, words: Sequence[str]) -> str:
    """The words in the way in which the command is written: each on a line of its own, or behind each other."""
    begins = source.rfind("\n", 0, anchor.written.at) + 1
    indent = source[begins : anchor.written.at]
    alone = not indent.strip() and call.words[0].written.at < begins
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

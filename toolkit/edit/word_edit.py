"""Edits single words of a shell script by their position. Every other byte stays the same.

A word is replaced inside its quotes, removed with the blank before it, or followed by a new one. Where its
value comes from a variable that nothing else uses, the assignment is edited instead. A plain word may also
stand within a quoted text, as in `bash -c "..."` or `EXTRA="a=1 b=2"`. The old lines are kept as comments
above the command. The result is parsed again, and must consist of the same commands except for these words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from verl_doctor.toolkit.edit.launch_text import continues, first_line, launch_text
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.shell.syntax import Node, Parameter, Part, Simple, Text, Written, below

_DOCKERFILE = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]*(?:ARG|FROM)[ \t]")
_LEAD = re.compile(r"(?:[ \t\n]|\\\n)*$")
_REST = re.compile(r"[ \t]*(\n?)")
_KEY = re.compile(r"(?P<quote>[\"']?)(?P<key>(?:\+{0,2}|~)[\w./@-]+)=")
_BARE = re.compile(r"[\w./:+-]+")
_PLAIN = re.compile(r"[\w./:@%+,=-]*|\[[\w./:@%+,=-]*\]")
_IN_A_TEXT = re.compile(r"[\w./:@%+,=~-]+")
_LITERAL_IN_DOUBLE = re.compile(r"[^\"$`\\!]*")


@dataclass(frozen=True)
class WordEdit:
    """Replace the word `written` on this line (from 1) by the words `new`; without these, remove it.

    With `follows` the word stays, and the new ones follow it.
    """

    line: int
    written: str
    new: tuple[str, ...] = ()
    follows: bool = False


def edited_words(source: bytes, path: str, edits: Sequence[WordEdit], comment: str) -> bytes:
    """Apply all edits or none. Raises CannotEdit, with the line, for unsafe edits."""
    from verl_doctor.toolkit.sources.shell.parse import parse  # noqa: PLC0415 - only for a script that is edited

    text = launch_text(source, path)
    if "\r" in text:
        raise CannotEdit(f"{path} has Windows line endings; correct these first")
    if _DOCKERFILE.match(text):
        raise CannotEdit(f"{path} is a Dockerfile: edit line {edits[0].line} by hand")
    nodes = parse(text)
    words = [node for node in below(nodes) if isinstance(node, Written) and node.at >= 0]
    found: list[tuple[WordEdit, Written]] = []
    for edit in dict.fromkeys(edits):
        word = _word(edit, words, text, path)
        if not word.parts:
            nodes = _with_text_edited(nodes, edit)
            found.append((edit, word))
            continue
        at_assignment = _at_assignment(edit, word, nodes, text)
        if at_assignment is None:
            found.append((edit, word))
        else:
            nodes, edit_there, place = at_assignment
            found.append((edit_there, place))
    spans = [_span(text, word, edit) for edit, word in found]
    spans += _comments(text, found, comment, nodes)
    after = text
    for start, end, new in sorted(spans, reverse=True):
        after = after[:start] + new + after[end:]
    wanted = {word.at: _expected(word, edit) for edit, word in found if word.parts}
    if form(parse(after), {}) != form(nodes, wanted):
        raise CannotEdit(
            f"{path}:{edits[0].line}: the word cannot be edited without changing the code around it"
        )
    return after.encode()


def with_value(written: str, key: str, value: str) -> str:
    """Return a word `key=...` with another value, in its original quotes. Raises CannotEdit."""
    match = _KEY.match(written)
    if match is None or match["key"] != key:
        raise CannotEdit(f"{written} does not begin with {key}=")
    quote, rest = match["quote"], written[match.end() :]
    if quote and _fits(value, quote) and rest.endswith(quote):
        return f"{match[0]}{value}{quote}"
    if quote:
        return shlex.quote(f"{key}={value}")
    if len(rest) > 1 and rest[0] in "\"'" and rest[-1] == rest[0] and _fits(value, rest[0]):
        return f"{match[0]}{rest[0]}{value}{rest[0]}"
    return as_word(f"{match[0]}{value}")


def with_key(written: str, key: str, new: str) -> str:
    """Return a word `key=...` with another key; the value stays as written. Raises CannotEdit."""
    match = _KEY.match(written)
    if match is None or match["key"] != key:
        raise CannotEdit(f"{written} does not begin with {key}=")
    return f"{match['quote']}{new}{written[match.end('key') :]}"


def as_word(text: str) -> str:
    """Quote a text as one shell word. In `key=value`, only the value is quoted, and only if necessary."""
    match = _KEY.match(text)
    if match is None or match["quote"]:
        return shlex.quote(text)
    value = text[match.end() :]
    plain = _PLAIN.fullmatch(value) is not None
    return f"{match[0]}{value if plain else shlex.quote(value)}"


def _fits(value: str, quote: str) -> bool:
    """Return whether a text is literal between these quotes."""
    return "'" not in value if quote == "'" else _LITERAL_IN_DOUBLE.fullmatch(value) is not None


def _word(edit: WordEdit, words: Sequence[Written], text: str, path: str) -> Written:
    """Return the word of an edit, without parts if it stands within a quoted text."""
    here = [word for word in words if word.line == edit.line and word.raw == edit.written]
    if len(here) == 1 and text[here[0].at : here[0].end] == edit.written:
        return here[0]
    elsewhere = [] if here else _elsewhere(edit, words, text)
    quoted = next((new for new in edit.new if not here and not _IN_A_TEXT.fullmatch(new)), "")
    if quoted and not elsewhere:
        raise CannotEdit(
            f"{path}:{edit.line}: {edit.written} is part of a text, in which {quoted} would need quotes "
            "of its own; edit it by hand"
        )
    if len(elsewhere) != 1:
        raise CannotEdit(f"{path}:{edit.line}: {edit.written} does not occur there exactly once")
    return elsewhere[0]


def _elsewhere(edit: WordEdit, words: Sequence[Written], text: str) -> list[Written]:
    """Return the places outside of comments where a plain word stands.

    It stands alone or in a text of several. Its replacement must be plain as well.
    """
    if not all(_IN_A_TEXT.fullmatch(word) for word in (edit.written, *edit.new)):
        return []
    by_place = {word.at: word for word in words if word.raw == edit.written}
    return [
        by_place.get(start) or Written((), text.count("\n", 0, start) + 1, edit.written, start)
        for start in (match.start() for match in _alone(edit.written).finditer(text))
        if not text[_line_start(text, start) :].lstrip().startswith("#")
    ]


def _alone(word: str) -> re.Pattern[str]:
    """Match a word between blanks and quotes."""
    return re.compile(rf"(?<![^\s\"'(]){re.escape(word)}(?![^\s\"';)])")


def _with_text_edited(nodes: tuple[Node, ...], edit: WordEdit) -> tuple[Node, ...]:
    """Return the nodes expected after an edit within a quoted text."""
    pattern = _alone(edit.written)
    new = _in_text(edit)

    def edited(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(map(edited, node))
        if isinstance(node, Text):
            return replace(node, text=pattern.sub(lambda _: new, node.text))
        if is_dataclass(node) and not isinstance(node, type):
            return replace(node, **{field.name: edited(getattr(node, field.name)) for field in fields(node)})
        return node

    after: tuple[Node, ...] = edited(nodes)
    if after == nodes:
        raise CannotEdit(f"{edit.written} does not occur there exactly once")
    return after


def _in_text(edit: WordEdit) -> str:
    return " ".join(((edit.written,) if edit.follows else ()) + edit.new)


def _at_assignment(
    edit: WordEdit, word: Written, nodes: tuple[Node, ...], text: str
) -> tuple[tuple[Node, ...], WordEdit, Written] | None:
    """Return the nodes expected after an edit of an assignment, the edit, and its place.

    The edit changes `NAME=value` in place of a word `key=$NAME`.

    None where that might change more than this word: the name occurs elsewhere, the assignment is conditional
    or exported, or its value is not literal.
    """
    *before, last = word.parts or (Text(""),)
    key = _literal(before)
    if key is None or not isinstance(last, Parameter) or last != Parameter(last.name, last.quoted):
        return None
    new = next(_parsed(edit.new[0])) if len(edit.new) == 1 and not edit.follows else None
    new_text = _literal(new.parts) if new else None
    if new_text is None or not key.endswith("=") or not new_text.startswith(key):
        return None
    name, value = last.name, new_text.removeprefix(key)
    found = [match.start() for match in re.finditer(rf"\b{re.escape(name)}\b", text)]
    if len(found) != 2 or _BARE.fullmatch(value) is None:
        return None
    match = re.compile(rf"[ \t]*({name}=([\"']?){_BARE.pattern}\2)(?=[ \t;\n]|$)").match(
        text, _line_start(text, found[0])
    )
    node = next((node for node in nodes if isinstance(node, Simple) and _assigns(node, name)), None)
    if match is None or node is None or match.end() > word.at:
        return None
    edited = f"{name}={match[2]}{value}{match[2]}"
    after = replace(node, assignments=(replace(node.assignments[0], value=(Text(value, bool(match[2])),)),))
    line = text.count("\n", 0, match.start()) + 1
    place = Written((), line, match[1], match.start(1))
    nodes = tuple(after if other is node else other for other in nodes)
    return nodes, WordEdit(line, match[1], (edited,)), place


def _assigns(node: Simple, name: str) -> bool:
    return not node.words and [part.name for part in node.assignments] == [name]


def _literal(parts: Sequence[Part]) -> str | None:
    """Return the text of these parts; None if one of them is an expansion."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if len(texts) == len(parts) else None


def _span(text: str, word: Written, edit: WordEdit) -> tuple[int, int, str]:
    """Return the replaced span of the text (start and end) and its replacement."""
    if not word.parts:
        return word.at, word.end, _in_text(edit)
    if edit.follows:
        alone = not text[_line_start(text, word.at) : word.at].strip()
        lead = f" \\\n{_indent(text, word.at)}" if alone else " "
        return word.end, word.end, "".join(lead + new for new in edit.new)
    if edit.new:
        return word.at, word.end, " ".join(edit.new)
    start = _line_start(text, word.at)
    if not text[start : word.at].strip() and not continues(text[: max(start - 1, 0)].rpartition("\n")[2]):
        # The first word of a continuation line without a backslash before it, as in an array: a comment will
        # go there.
        rest = _REST.match(text, word.end)
        return (
            (start, rest.end(), "") if rest and rest[1] else (word.at, rest.end() if rest else word.end, "")
        )
    blank = _LEAD.search(text[: word.at])
    return blank.start() if blank else word.at, word.end, ""


def _comments(
    text: str, found: Sequence[tuple[WordEdit, Written]], comment: str, nodes: tuple[Node, ...]
) -> list[tuple[int, int, str]]:
    """Return each replaced line and each added word as a comment above the first line of its command."""
    lines = text.split("\n")
    notes: dict[int, list[str]] = {}
    for edit, word in sorted(found, key=lambda pair: pair[1].at):
        note = f"added: {' '.join(edit.new)}" if edit.follows else lines[word.line - 1].strip()
        starts = [node.line for node in below(nodes) if isinstance(node, Simple) and node.line <= word.line]
        line = word.line if word.parts else max(starts, default=word.line)
        notes.setdefault(first_line(lines, line), []).append(note)
    spans = []
    for first, rows in notes.items():
        start = sum(len(line) + 1 for line in lines[: first - 1])
        indent = _indent(text, start)
        spans.append((start, start, "".join(f"{indent}# {row}  {comment}\n" for row in dict.fromkeys(rows))))
    return spans


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _indent(text: str, at: int) -> str:
    line = text[_line_start(text, at) :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _expected(word: Written, edit: WordEdit) -> tuple[Any, ...]:
    """Return what the parser must produce for this word."""
    new = tuple(part for raw in edit.new for part in _parsed(raw))
    return (word, *new) if edit.follows else new


def _parsed(raw: str) -> Iterator[Written]:
    """Yield a separate word, as the argument of a command."""
    from verl_doctor.toolkit.sources.shell.parse import parse  # noqa: PLC0415 - only for a script that is edited

    nodes: tuple[Node, ...] = parse(f": {raw}")
    words = [part for part in below(nodes) if isinstance(part, Written)][1:]
    if len(words) != 1 or words[0].raw != raw:
        raise CannotEdit(f"{raw} is not a single shell word")
    yield words[0]


def form(node: Any, wanted: Mapping[int, tuple[Any, ...]]) -> Any:
    """Return a tree without positions, and with the intended words."""
    if isinstance(node, tuple):
        parts = [
            new
            for part in node
            for new in (
                wanted.get(part.at, (part,)) if isinstance(part, Written) and part.at >= 0 else (part,)
            )
        ]
        return tuple(form(part, wanted) for part in parts)
    if isinstance(node, Written):
        return ("Written", _joined(node))
    if is_dataclass(node):
        return (
            type(node).__name__,
            *(form(getattr(node, field.name), wanted) for field in fields(node) if field.name != "line"),
        )
    return node


def _joined(word: Written) -> Any:
    """Return the parts of a word; adjacent texts are merged whether or not they are quoted separately."""
    if all(isinstance(part, Text) for part in word.parts):
        return "".join(part.text for part in word.parts if isinstance(part, Text))
    return tuple(repr(part) for part in word.parts)

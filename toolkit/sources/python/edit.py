"""Edits a Python source by its syntax tree, so that every byte outside the edited lines stays the same.

The lines that an edit touches are kept as comments above their replacement, and both end in a marker.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import Unreadable, parse

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_END = re.compile(r"(?:\r\n|\r|\n)?\Z")
Node = ast.expr | ast.stmt | ast.keyword | ast.arg | ast.alias


class CannotEdit(Exception):  # noqa: N818 - it is an answer, not an accident
    """A form of source that this editor does not change; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement for the text from `start` to `end`, given as character offsets."""

    start: int
    end: int
    text: str


class SourceText:
    """A source file as text, with its syntax tree. Raises CannotEdit for what cannot be read exactly."""

    def __init__(self, source: bytes, path: str) -> None:
        self.path = path
        self._bom = codecs.BOM_UTF8 if source.startswith(codecs.BOM_UTF8) else b""
        self.encoding = _encoding(source, path)
        try:
            self.text = source[len(self._bom) :].decode(self.encoding)
        except UnicodeDecodeError as error:
            raise CannotEdit(f"{path} is not valid {self.encoding}: {error.reason}") from None
        if self.to_bytes(self.text) != source:
            raise CannotEdit(f"{path} would not survive decoding from {self.encoding} and back")
        tree = parse(source, Path(path))
        if isinstance(tree, Unreadable):
            raise CannotEdit(tree.reason)
        self.tree = tree
        self.lines = _LINE.findall(self.text)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def to_bytes(self, text: str) -> bytes:
        """Encode as the file was. Raises CannotEdit when the text does not fit into its encoding."""
        try:
            return self._bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise CannotEdit(f"{self.path}: {error.reason}") from None

    def start(self, node: Node) -> int:
        """Return where a node begins, as a character offset."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        """Return where a node ends."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def of(self, node: Node) -> str:
        """Return the text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def is_alone(self, node: ast.stmt) -> bool:
        """Return whether a statement shares its lines with no other code; a comment may follow it."""
        before = self.lines[node.lineno - 1][: self.start(node) - self._starts[node.lineno - 1]]
        after = self.text[self.end(node) : self._starts[node.end_lineno or node.lineno]]
        return not before.strip() and after.strip()[:1] in {"", "#"}

    def indented(self, text: str, node: ast.stmt) -> str:
        """Return replacement lines for a statement, with its indentation and this file's line endings."""
        return f"{self.newline}{self.indent(node)}".join(text.split("\n"))

    def indent(self, node: ast.stmt) -> str:
        """Return the text before the statement on its first line."""
        return _indent(self.lines[node.lineno - 1])

    def line_start(self, line: int) -> int:
        """Return where a line (from 1) begins, as a character offset."""
        return self._starts[line - 1]

    @property
    def newline(self) -> str:
        """The line ending of this file."""
        return next((end for line in self.lines if (end := _ending(line))), "\n")

    def _offset(self, line: int, column: int) -> int:
        """Convert a position of the syntax tree, which counts UTF-8 bytes, into a character offset."""
        text = self.lines[line - 1]
        if text.isascii():
            return self._starts[line - 1] + column
        return self._starts[line - 1] + len(text.encode()[:column].decode("utf-8", "ignore"))

    def edited(self, edits: Iterable[Edit], comment: str) -> bytes:
        """Apply edits, keep the replaced lines as comments, and end old and new lines in `comment`.

        Raises CannotEdit when the result would not parse.
        """
        text = self.text
        for first, last, group in reversed(list(self._groups(sorted(edits, key=lambda edit: edit.start)))):
            begin, stop = self._starts[first], self._starts[last]
            after = self.text[begin:stop]
            for edit in reversed(group):
                after = after[: edit.start - begin] + edit.text + after[edit.end - begin :]
            text = text[:begin] + self._replacement(self.lines[first:last], after, comment) + text[stop:]
        result = self.to_bytes(text)
        if (
            isinstance(parse(result, Path(self.path)), Unreadable)
            or _encoding(result, self.path) != self.encoding
        ):
            raise CannotEdit(f"{self.path}: the edited source would not parse")
        return result

    def _replacement(self, before: list[str], after: str, comment: str) -> str:
        kept = [
            f"{_indent(line)}# {line.strip()}".rstrip() + f"  {comment}{_ending(line) or self.newline}"
            for line in before
            if line.strip()
        ]
        old = set(before)
        new = _LINE.findall(after)
        unmarkable = _unmarkable(after)
        result = []
        for number, line in enumerate(new):
            changed = line not in old or number == len(new) - 1
            if changed and number + 1 not in unmarkable and line.strip():
                result.append(f"{line.rstrip(chr(13) + chr(10)).rstrip()}  {comment}{_ending(line)}")
            else:
                result.append(line)
        return "".join([*kept, *result])

    def _groups(self, edits: list[Edit]) -> Iterator[tuple[int, int, list[Edit]]]:
        """Group edits whose lines touch: first line, line after the last (from 0), and the edits."""
        spans = [(*self._span(edit), edit) for edit in edits]
        while spans:
            first, last, edit = spans.pop(0)
            group = [edit]
            while spans and spans[0][0] < last:
                _, other, edit = spans.pop(0)
                last, group = max(last, other), [*group, edit]
            yield first, last, group

    def _span(self, edit: Edit) -> tuple[int, int]:
        """Return the lines of an edit, or of its whole statement if no comment is possible between them."""
        first, last = self._line(edit.start), self._line(max(edit.start, edit.end - 1)) + 1
        glued = self._uncommentable
        while first > 0 and first in glued:
            first -= 1
        while last < len(self.lines) and last in glued:
            last += 1
        return first, last

    def _line(self, offset: int) -> int:
        return max(index for index, start in enumerate(self._starts[:-1]) if start <= offset)

    @property
    def _uncommentable(self) -> frozenset[int]:
        """Return the lines (from 0) before which no comment is possible: a string or backslash precedes.

        They continue a string or follow a backslash.
        """
        inside: set[int] = set()
        for first, last in _strings(self.text):
            inside.update(range(first, last))
        inside |= {index + 1 for index, line in enumerate(self.lines) if line.rstrip("\r\n").endswith("\\")}
        return frozenset(inside)


def _encoding(source: bytes, path: str) -> str:
    try:
        name = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CannotEdit(f"{path}: {error}") from None
    return "utf-8" if name == "utf-8-sig" else name


def _strings(text: str) -> list[tuple[int, int]]:
    """Return lines that are spanned by a string: the line (from 1) where each begins, and where it ends."""
    found = []
    begun: list[int] = []
    for token in _tokens(text):
        name = tokenize.tok_name[token.type]
        if name in {"FSTRING_START", "TSTRING_START"}:
            begun.append(token.start[0])
        elif name in {"FSTRING_END", "TSTRING_END"} and begun:
            found.append((begun.pop(), token.end[0]))
        elif token.type == tokenize.STRING and token.start[0] != token.end[0]:
            found.append((token.start[0], token.end[0]))
    return found


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield tokens until an error: a part of a statement need not be complete."""
    lines = iter(_LINE.findall(text))
    try:
        yield from tokenize.generate_tokens(lambda: next(lines, ""))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def _unmarkable(text: str) -> frozenset[int]:
    """Return lines (from 1) that cannot carry a comment: a string goes on after, or a backslash ends them."""
    found: set[int] = set()
    for first, last in _strings(text):
        found.update(range(first, last))
    for number, line in enumerate(_LINE.findall(text), 1):
        if line.rstrip("\r\n").endswith("\\"):
            found.add(number)
    return frozenset(found)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def _ending(line: str) -> str:
    match = _END.search(line)
    return match[0] if match else ""

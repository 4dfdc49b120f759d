"""Parses the words of a shell script into quotes and expansions, without expanding anything.

Grammar: POSIX.1-2017, Shell Command Language, 2.2 to 2.6, and the bash manual for `$'...'` and arrays.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod

from verl_doctor.toolkit.sources.shell.syntax import (
    Arithmetic,
    Input,
    Parameter,
    Part,
    ShellWord,
    Substitution,
    Text,
    Written,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(r"[0-9@*#?$!_-]")
_OPERATOR = re.compile(r"##?|%%?|/[/#%]?|:[-=?+]?|\^\^?|,,?|[-=?+@]")  # what may follow the name in `${name}`
_NO_OPERATOR = re.compile(r"[.$&\\]")  # after a name in `${name...}` bash accepts none of them
BREAK = frozenset(" \t\n;&|()<>")
DEEPEST = 60  # levels of nesting
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "E": "\x1b",
}
_NUMBERED = re.compile(r"([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})")


def _character(number: int) -> str:
    """Return the character of a number. What Unicode lacks has no text."""
    known = number <= sys.maxunicode and not 0xD800 <= number < 0xE000
    return chr(number) if known else "\N{REPLACEMENT CHARACTER}"


class NoShellError(Exception):
    """The text violates the grammar.

    `refused` is bash's message where it parses the text but refuses to expand it.
    """

    refused = ""


class WordReader(ABC):
    """A position in the text of a script, and a parser for the word there.

    `line` is the number of the text's first line.
    """

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.at = 0
        self.first_line = line
        self.depth = 0
        # Here-documents that begin after this line: the word at the end, whether tabs are dropped, whether
        # the text is literal.
        self._waiting: list[tuple[str, bool, bool, Input]] = []
        self._written: list[Written] = []  # the targets of redirections of the command that is being read
        self._input: Input | None = None  # what that command reads
        self._appends = False
        self._counted = (0, line)

    def blanks(self) -> None:
        """Skip blanks, continued lines, and a comment."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t":
                self.at += 1
            elif self.continues():
                self.at = min(self.at + 2, len(text))
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def continues(self) -> bool:
        """Return whether there is a backslash here that bash drops with the end of line, or of the script."""
        return self.text.startswith("\\", self.at) and self.text[self.at + 1 : self.at + 2] in ("\n", "")

    def newlines(self) -> None:
        """Skip blanks and ends of lines."""
        self.blanks()
        while self.at < len(self.text) and self.text[self.at] == "\n":
            self.end_line()
            self.blanks()

    def end_line(self) -> None:
        """Skip an end of line, and read the here-documents that were announced in it."""
        self.at += 1
        for word, tabs, is_literal, document in self._waiting:
            document.line = self.line
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                found = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                found = found.lstrip("\t") if tabs else found
                if found == word:
                    break
                lines.append(f"{found}\n")
            document.parts, document.refused = self.parts_of_document(
                "".join(lines), document.line, is_literal=is_literal
            )
        self._waiting.clear()

    def parts_of_document(self, text: str, line: int, *, is_literal: bool) -> tuple[ShellWord | None, str]:
        """Parse the text of a here-document.

        Return its parts, None if it cannot be followed, and bash's message if it refuses to expand it.
        """
        if is_literal or not re.search(r"[$`\\]", text):
            return (Text(text, quoted=True),), ""
        try:
            return type(self)(text, line).quoted_text(), ""
        except NoShellError as problem:
            return None, problem.refused
        except RecursionError:
            return None, ""

    def peek(self, operator: str) -> bool:
        """Return whether this text is here."""
        return self.text.startswith(operator, self.at)

    @property
    def line(self) -> int:
        """The line of the current position, counted from the last call."""
        at, line = self._counted
        line += self.text.count("\n", at, self.at) if self.at >= at else -self.text.count("\n", self.at, at)
        self._counted = (self.at, line)
        return line

    def skip_arithmetic(self) -> None:
        """Move to after the `))` that ends an arithmetic expression."""
        depth = 0
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "(":
                depth += 1
            elif sign == ")":
                if depth == 0 and self.peek("))"):
                    self.at += 2
                    return
                depth -= 1
            self.at += 1
        raise NoShellError("`))` is missing")

    def word(self, *, pattern: bool = False) -> Written:
        """Return the word that begins here."""
        line, start = self.line, self.at
        parts = self.parts(pattern=pattern)
        if self.at == start:
            raise NoShellError("a word is missing")
        return Written(parts, line, self.text[start : self.at], start)

    def all_parts(self) -> ShellWord:
        """Return the whole text as one word, blanks included."""
        parts: list[Part] = []
        while self.at < len(self.text):
            parts += self.parts(stop=frozenset())
        return tuple(parts)

    def parts(self, stop: frozenset[str] = BREAK, *, pattern: bool = False) -> ShellWord:
        """Return parts up to one of the characters in `stop`."""
        text = self.text
        parts: list[Part] = []
        plain = ""

        def flush() -> None:
            nonlocal plain
            if plain:
                parts.append(Text(plain))
                plain = ""

        while self.at < len(text):
            sign = text[self.at]
            if sign in stop and not (pattern and sign in "()|" and plain):
                if sign in "<>" and text.startswith("(", self.at + 1):
                    flush()
                    self.at += 1
                    parts.append(Substitution(f"{{\n{self.parenthesised()}\n}}"))  # a path, not the output
                    continue
                break
            if sign == "\\":
                if self.continues():
                    self.at = min(self.at + 2, len(text))
                    continue
                flush()
                parts.append(Text(text[self.at + 1 : self.at + 2], quoted=True))
                self.at += 2
            elif sign == "'":
                flush()
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise NoShellError("a single quote is not closed")
                parts.append(Text(text[self.at + 1 : end], quoted=True))
                self.at = end + 1
            elif sign == '"':
                flush()
                self.at += 1
                parts += self.double_quoted()
            elif sign == "$" and text.startswith("'", self.at + 1):
                flush()
                self.at += 2
                parts.append(Text(self.ansi_quoted(), quoted=True))
            elif sign == "$" and text.startswith('"', self.at + 1):
                flush()
                self.at += 2
                parts += self.double_quoted()
            elif sign in "$`":
                flush()
                parts.append(self.expansion(quoted=False))
            else:
                plain += sign
                self.at += 1
        flush()
        return tuple(parts)

    def double_quoted(self) -> list[Part]:
        """Return the text up to the closing double quote."""
        text = self.text
        parts: list[Part] = []
        plain = ""
        while self.at < len(text):
            sign = text[self.at]
            if sign == '"':
                self.at += 1
                return [*parts, Text(plain, quoted=True)] if plain or not parts else parts
            if sign == "\\" and self.at + 1 < len(text) and text[self.at + 1] in '$`"\\\n':
                plain += "" if text[self.at + 1] == "\n" else text[self.at + 1]
                self.at += 2
            elif sign in "$`":
                if plain:
                    parts.append(Text(plain, quoted=True))
                    plain = ""
                parts.append(self.expansion(quoted=True))
            else:
                plain += sign
                self.at += 1
        raise NoShellError("a double quote is not closed")

    def ansi_quoted(self) -> str:
        r"""Return the content of `$'...'`, in which `\n` is a line break."""
        found = ""
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "'":
                self.at += 1
                return found.partition("\0")[0]  # bash drops what follows NUL
            if sign == "\\" and (match := _NUMBERED.match(self.text, self.at + 1)):
                octal, digits = match[1], match[2] or match[3] or match[4]
                found += _character(int(octal, 8) & 0xFF if octal else int(digits, 16))
                self.at = match.end() - 1
            elif sign == "\\":
                self.at += 1
                escaped = self.text[self.at : self.at + 1]
                found += _ESCAPES.get(escaped, escaped if escaped in "\\'\"?" else "\\" + escaped)
            else:
                found += sign
            self.at += 1
        raise NoShellError("a single quote is not closed")

    def expansion(self, *, quoted: bool) -> Part:
        """Return what a `$` or a backquote begins."""
        text = self.text
        if text[self.at] == "`":
            end = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL).match(text, self.at + 1)
            if not end:
                raise NoShellError("a backquote is not closed")
            script = text[self.at + 1 : end.end() - 1]
            self.at = end.end()
            escaped = r"\\([$`\\\"])" if quoted else r"\\([$`\\])"
            return Substitution(re.sub(escaped, r"\1", script), quoted)
        self.at += 1
        if self.peek("(("):
            start = self.at + 2
            before = self.at
            self.at = start
            try:
                self.skip_arithmetic()
            except NoShellError:
                self.at = before
            else:
                inside = type(self)(text[start : self.at - 2], self.line)
                return Arithmetic(inside.all_parts(), quoted)
        if self.peek("("):
            return Substitution(self.parenthesised(), quoted)
        if self.peek("["):
            raise NoShellError("`$[...]` is not followed")
        if self.peek("{"):
            self.at += 1
            return self.braced(quoted=quoted)
        name = NAME.match(text, self.at)
        match = name or _SPECIAL.match(text, self.at)
        if not match:
            return Text("$", quoted)
        self.at = match.end()
        return Parameter(match.group(), quoted, bare=name is not None)

    def braced(self, *, quoted: bool) -> Part:
        """Return `${...}`, after its brace."""
        text, start = self.text, self.at
        length = self.peek("#") and not self.peek("#}")
        if length:
            self.at += 1
        indirect = re.compile(r"!(?=\w)").match(text, self.at) is not None
        self.at += indirect
        match = NAME.match(text, self.at) or re.compile(r"\d+|[@*#?$!-]").match(text, self.at)
        if not match:
            raise NoShellError("`${` names no variable")
        self.at = match.end()
        index: ShellWord | None = None
        if indirect and (self.peek("*}") or self.peek("@}")):  # all names that begin so
            index = (Text(text[self.at]),)
            self.at += 1
        if self.peek("["):
            self.at += 1
            index = self.parts(frozenset("]"))
            self.at += 1
        found = _OPERATOR.match(text, self.at)
        operator = found.group() if found else ""
        self.at += len(operator)
        argument = self.argument(quoted=quoted)
        if not self.peek("}"):
            raise NoShellError("the `}` of `${` is missing")
        self.at += 1
        if argument and not operator:
            problem = NoShellError("the content of `${` is not followed")
            if _NO_OPERATOR.match(text, match.end()) and index is None:
                problem.refused = f"{text[start - 2 : self.at]}: bad substitution"
            raise problem
        return Parameter(match.group(), quoted, index, operator, argument, length, indirect)

    def argument(self, *, quoted: bool) -> ShellWord:
        """Return the word after `${name:-`, in which blanks are plain characters."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoShellError("this is nested too deeply")
        parts = self.quoted_text("}") if quoted else self.parts(frozenset("}"))
        self.depth -= 1
        return parts

    def quoted_text(self, end: str = "") -> ShellWord:
        """Return a text in which single quotes are literal.

        It is a word within double quotes up to `end`, or a here-document, to whose end double quotes are
        literal, too.
        """
        text = self.text
        quotes = '"' if end else ""
        parts: list[Part] = []
        plain = ""
        while self.at < len(text) and text[self.at] != end:
            sign = text[self.at]
            if sign in "$`" or sign == quotes:
                if plain:
                    parts.append(Text(plain, quoted=True))
                    plain = ""
                if sign == '"':
                    self.at += 1
                    parts += self.double_quoted()
                else:
                    parts.append(self.expansion(quoted=True))
            elif sign == "\\" and self.at + 1 < len(text) and text[self.at + 1] in f"$`\\\n{quotes}{end}":
                plain += "" if text[self.at + 1] == "\n" else text[self.at + 1]
                self.at += 2
            else:
                plain += sign
                self.at += 1
        if plain:
            parts.append(Text(plain, quoted=True))
        return tuple(parts)

    @abstractmethod
    def parenthesised(self) -> str:
        """Skip `( ... )`, and return its content: commands."""

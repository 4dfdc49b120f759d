"""The parts of a shell script after parsing: words with their expansions, and commands.

Nothing is run or expanded here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """Literal characters. Quoted characters are neither split nor brace-expanded."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Parameter:
    """`$name`, `${name[index]}`, `${name<operator>argument}`; `length`: `${#name}`; `indirect`: `${!name}`.

    `bare`: without braces, so that letters which follow once braces are expanded belong to the name.
    """

    name: str
    quoted: bool = False
    index: ShellWord | None = None
    operator: str = ""
    argument: ShellWord = ()
    length: bool = False
    indirect: bool = False
    bare: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Arithmetic:
    """`$((expression))`."""

    expression: ShellWord
    quoted: bool = False


@dataclass(frozen=True)
class Substitution:
    """`$(command)` or backquotes: its output."""

    script: str
    quoted: bool = False


Part = Text | Parameter | Arithmetic | Substitution
ShellWord = tuple[Part, ...]


@dataclass(frozen=True)
class Written:
    """A word at its place: its parts, the line, and the characters as they are in the file.

    `at` is its character offset in the text; -1 for what is no word of the grammar, as in `[[ ... ]]`.
    """

    parts: ShellWord
    line: int
    raw: str
    at: int = field(default=-1, compare=False, repr=False)

    @property
    def end(self) -> int:
        """The offset at which the word ends."""
        return self.at + len(self.raw)


@dataclass(frozen=True)
class Assignment:
    """`name=value`, `name+=value`, `name[index]=value` or `name=(value ...)`, whose values are `items`."""

    name: str
    line: int
    value: ShellWord = ()
    items: tuple[Written, ...] | None = None
    append: bool = False
    index: ShellWord | None = None


@dataclass(unsafe_hash=True)
class Input:
    """What a command reads.

    A here-document whose text begins on `line`, a here-string, or the file that `parts` name (`is_file`).

    `parts` is None until the text has been parsed, and if it cannot be. `refused` is bash's message for a
    here-document that it cannot expand: the command does not run. `opens_output`: it has opened its output by
    then.
    """

    parts: ShellWord | None
    line: int
    is_file: bool = False
    refused: str = ""
    opens_output: bool = False


@dataclass(frozen=True)
class Simple:
    """Assignments, then a command word with its arguments. `written` are the files that its output goes to.

    `appends`: the output is added to one of them. `input` is what the command reads. Other redirections are
    dropped.
    """

    words: tuple[Written | Assignment, ...]
    line: int
    assignments: tuple[Assignment, ...] = ()
    written: tuple[Written, ...] = ()
    appends: bool = False
    input: Input | None = None


@dataclass(frozen=True)
class AndOr:
    """`first && second || third ...`: each of the rest with the operator in front of it."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Pipeline:
    """`a | b`: each runs in a separate shell, a single command in this one.

    `negated`: a `!` stands in front.
    """

    commands: tuple[Node, ...]
    negated: bool = False


@dataclass(frozen=True)
class If:
    """`if`, `elif` and `else` as (condition, body); the condition of `else` is empty."""

    arms: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]


@dataclass(frozen=True)
class Loop:
    """`for name in words` (None: the script's arguments), `while` or `until` (no name).

    `chosen`: `select`, where somebody chooses a word.
    """

    body: tuple[Node, ...]
    name: str = ""
    words: tuple[Written, ...] | None = None
    condition: tuple[Node, ...] = ()
    line: int = 0
    chosen: bool = False


@dataclass(frozen=True)
class Case:
    """`case word in`: the patterns and body of each arm.

    `goes_on`: an arm ends in `;;&`, so several may run.
    """

    subject: Written
    arms: tuple[tuple[tuple[Written, ...], tuple[Node, ...]], ...]
    goes_on: bool = False


@dataclass(frozen=True)
class Function:
    """A definition; its body runs where it is called."""

    name: str
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    """`{ ...; }`, or in a subshell: `( ... )`, and in the `background` `... &`.

    `written` are the files that its output goes to.
    """

    body: tuple[Node, ...]
    subshell: bool = False
    background: bool = False
    written: tuple[Written, ...] = ()


@dataclass(frozen=True)
class Unread:
    """A part that the parser does not follow, and why.

    `refused`: bash's message when it refuses only this command on reaching it.
    """

    line: int
    why: str
    refused: str = ""


Node = Simple | AndOr | Pipeline | If | Loop | Case | Function | Group | Unread


def below(node: Any) -> Iterator[Any]:
    """Yield every part of a tree, each before its own parts."""
    if isinstance(node, tuple):
        for part in node:
            yield from below(part)
    elif is_dataclass(node):
        yield node
        for part in fields(node):
            yield from below(getattr(node, part.name))


_NOT_EVERY_WORD = re.compile(
    r"\"?\$(?:(?P<all>\*)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:\[\*\])?\})\"?"
)


def every_word(written: str) -> str:
    """Return what passes all elements as words of their own in place of `$NAME`, `"${NAME[*]}"` or `"$*"`.

    "" for any other word.
    """
    found = _NOT_EVERY_WORD.fullmatch(written)
    if found is None:
        return ""
    return '"$@"' if found["all"] else f'"${{{found["bare"] or found["name"]}[@]}}"'


def spaced_assignment(node: Any) -> str:
    """Return the variable to which a command is meant to assign, with a blank before the sign; "" for none.

    Such as `NAME = value`, which bash takes for a program, and `export NAME = value`.
    """
    if not isinstance(node, Simple) or node.assignments:
        return ""
    raws = [word.raw if isinstance(word, Written) else "" for word in node.words]
    declares = raws[:1] in (["export"], ["declare"], ["local"], ["readonly"])
    name, sign = (*raws[declares : declares + 2], "", "")[:2]
    is_sign = sign.startswith("=") and not sign.startswith("==")
    return name if is_sign and name.isascii() and name.isidentifier() else ""

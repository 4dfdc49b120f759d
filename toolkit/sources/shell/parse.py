"""Parses a shell script into its commands: the part of POSIX and bash that launch scripts use.

Nothing is run.

Grammar: POSIX.1-2017, Shell Command Language, 2.10, and the bash manual for arrays, `[[`, `((`, `+=` and
`<<<`.
"""

from __future__ import annotations

import re
import sys

from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Assignment,
    Case,
    Function,
    Group,
    If,
    Input,
    Loop,
    Node,
    Pipeline,
    Simple,
    Text,
    Unread,
    Written,
)
from verl_doctor.toolkit.sources.shell.words import BREAK, DEEPEST, NAME, NoShellError, WordReader

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?(\+)?=")
_FUNCTION = re.compile(r"[A-Za-z_][\w.:-]*[ \t]*\([ \t]*\)")
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>"})
_REDIRECTION = re.compile(r"(?:\d+|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|>>|>\||>&|<&|&>>|&>|<|>)")
_DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_MOST_FAILURES = 20
_COMPOUND = re.compile(
    r"(?:if|for|while|until|case|select|function|\{|\[\[|!|time)(?=[\s(]|$)|\(|[A-Za-z_][\w.:-]*[ \t]*\("
    r"[ \t]*\)"
)
_COPROCESS = re.compile(r"coproc[ \t]+(?:[A-Za-z_]\w*[ \t]+(?=[({]|(?:if|for|while|until|case)\s))?")
_END_OF_LINE = re.compile(r"\n")
_END_OF_COMMAND = re.compile(r"(?<!\\)\n")  # the next line continues after a backslash


def parse(text: str, line: int = 1) -> tuple[Node, ...]:
    """Parse a script whose first line has this number. An `Unread` marks where it cannot be followed."""
    return _Parser(text, line).script()


class _Parser(WordReader):
    def script(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        failures = 0
        while True:
            self.newlines()
            start = self.at
            try:
                nodes += self.commands(frozenset(), most=1)
                if self.at >= len(self.text):
                    return tuple(nodes)
                if self.at > start:
                    continue
                why, refused = f"`{self.text[self.at]}` is not expected here", ""
            except NoShellError as problem:
                why = str(problem)
                refused = "" if _COMPOUND.match(self.text, start) else problem.refused
            except RecursionError:
                why, refused = "this is nested too deeply", ""
            self.at, self.depth = start, 0
            failures += 1
            if failures > _MOST_FAILURES:
                return (
                    *nodes,
                    Unread(self.line, "too much before this line is not shell syntax; the rest is not read"),
                )
            nodes.append(Unread(self.line, why, refused))
            self._waiting.clear()
            end = _END_OF_COMMAND if refused else _END_OF_LINE
            match = end.search(self.text, self.at)
            self.at = match.end() if match else len(self.text)

    def keyword(self) -> str:
        """Return the plain word that begins here, without moving."""
        match = re.compile(r"[^\s;&|()<>\"'$`\\]+").match(self.text, self.at)
        return match.group() if match else ""

    def expect(self, word: str) -> None:
        self.newlines()
        if self.keyword() != word:
            raise NoShellError(f"`{word}` is missing")
        self.at += len(word)

    # Commands

    def commands(self, until: frozenset[str], most: int = sys.maxsize) -> tuple[Node, ...]:
        """Read commands up to one of these words or closing signs, which stays, or at most `most`."""
        nodes: list[Node] = []
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoShellError("this is nested too deeply")
        while len(nodes) < most:
            self.newlines()
            if self.at >= len(self.text):
                break
            if self.keyword() in until or self.peek(")") or self.peek(";;") or self.peek(";&"):
                break
            nodes.append(self.and_or())
            self.blanks()
            if self.peek(";;") or self.peek(";&"):
                break
            if self.at < len(self.text) and self.text[self.at] in ";&":
                if self.peek("&"):
                    nodes[-1] = Group((nodes[-1],), subshell=True, background=True)
                self.at += 1
            elif self.at < len(self.text) and self.text[self.at] not in "\n)":
                if self.keyword() in until:
                    break
                raise NoShellError(f"`{self.text[self.at]}` is not expected here")
        self.depth -= 1
        return tuple(nodes)

    def and_or(self) -> Node:
        first = self.pipeline()
        rest = []
        while self.peek("&&") or self.peek("||"):
            sign = self.text[self.at : self.at + 2]
            self.at += 2
            self.newlines()
            rest.append((sign, self.pipeline()))
        return AndOr(first, tuple(rest)) if rest else first

    def pipeline(self) -> Node:
        self.blanks()
        negated = False
        while (word := self.keyword()) in ("!", "time"):
            self.at += len(word)
            self.blanks()
            negated ^= word == "!"
            if word == "time" and self.keyword() == "-p":
                self.at += 2
                self.blanks()
        nodes = [self.command()]
        self.blanks()
        while self.peek("|") and not self.peek("||"):
            self.at += 2 if self.peek("|&") else 1
            self.newlines()
            nodes.append(self.command())
            self.blanks()
        return nodes[0] if len(nodes) == 1 and not negated else Pipeline(tuple(nodes), negated)

    def command(self) -> Node:
        self.blanks()
        word = self.keyword()
        compound = {
            "if": self.if_command,
            "for": self.for_command,
            "select": self.for_command,
            "while": self.while_command,
            "until": self.while_command,
            "case": self.case_command,
            "function": self.function,
            "{": self.group,
            "[[": self.test,
        }.get(word)
        if word in _CLOSING:
            raise NoShellError(f"`{word}` is not expected here")
        node: Node
        before = len(self._written)
        if self.peek("(("):
            node = self.arithmetic_command()
        elif self.peek("("):
            self.at += 1
            node = Group(self.commands(frozenset()), subshell=True)
            self.close(")")
        elif coprocess := _COPROCESS.match(self.text, self.at):
            self.at = coprocess.end()
            node = Group((self.command(),), subshell=True, background=True)
        elif compound:
            node = compound()
        elif (match := _FUNCTION.match(self.text, self.at)) is not None:
            self.at = match.end()
            return self.function_body(match.group().split("(")[0].strip())
        else:
            return self.simple()
        self.redirections()
        written, self._written = self._written[before:], self._written[:before]
        return Group((node,), written=tuple(written)) if written else node

    def close(self, sign: str) -> None:
        self.newlines()
        if not self.peek(sign):
            raise NoShellError(f"`{sign}` is missing")
        self.at += len(sign)

    def if_command(self) -> Node:
        arms = []
        self.at += 2
        condition = self.commands(frozenset({"then"}))
        while True:
            self.expect("then")
            body = self.commands(frozenset({"elif", "else", "fi"}))
            arms.append((condition, body))
            word = self.keyword()
            if word == "elif":
                self.at += 4
                condition = self.commands(frozenset({"then"}))
                continue
            if word == "else":
                self.at += 4
                arms.append(((), self.commands(frozenset({"fi"}))))
            self.expect("fi")
            return If(tuple(arms))

    def for_command(self) -> Node:
        line, chosen = self.line, self.keyword() == "select"
        self.at += len(self.keyword())
        self.blanks()
        words: tuple[Written, ...] | None = None
        condition: tuple[Node, ...] = ()
        name = ""
        if self.peek("(("):
            condition = (self.arithmetic_command(),)
            words = ()
        else:
            match = NAME.match(self.text, self.at)
            if not match:
                raise NoShellError("the name after `for` is missing")
            name = match.group()
            self.at = match.end()
            self.newlines()
            if self.keyword() == "in":
                self.at += 2
                words = tuple(self.words())
        self.blanks()
        if self.peek(";"):
            self.at += 1
        return Loop(self.do_group(), name, words, condition, line, chosen)

    def while_command(self) -> Node:
        self.at += len(self.keyword())
        condition = self.commands(frozenset({"do"}))
        return Loop(self.do_group(), condition=condition)

    def do_group(self) -> tuple[Node, ...]:
        self.expect("do")
        body = self.commands(frozenset({"done"}))
        self.expect("done")
        return body

    def case_command(self) -> Node:
        self.at += 4
        self.blanks()
        subject = self.word()
        self.expect("in")
        arms: list[tuple[tuple[Written, ...], tuple[Node, ...]]] = []
        ends: list[str] = []
        while True:
            self.newlines()
            if self.at >= len(self.text):
                raise NoShellError("`esac` is missing")
            if self.keyword() == "esac":
                self.at += 4
                for place in range(len(arms) - 2, -1, -1):
                    if ends[place] == ";&":  # the next arm's commands follow
                        arms[place] = arms[place][0], (*arms[place][1], *arms[place + 1][1])
                return Case(subject, tuple(arms), ";;&" in ends)
            if self.peek("("):
                self.at += 1
            patterns = []
            while True:
                self.blanks()
                patterns.append(self.word())
                self.blanks()
                if not self.peek("|"):
                    break
                self.at += 1
            self.close(")")
            arms.append((tuple(patterns), self.commands(frozenset({"esac"}))))
            ends.append(next((end for end in (";;&", ";;", ";&") if self.peek(end)), ""))
            self.at += len(ends[-1])

    def function(self) -> Node:
        self.at += len("function")
        self.blanks()
        name = self.keyword()
        self.at += len(name)
        self.blanks()
        if match := re.compile(r"\([ \t]*\)").match(self.text, self.at):
            self.at = match.end()
        if not name:
            raise NoShellError("the function has no name")
        return self.function_body(name)

    def function_body(self, name: str) -> Node:
        self.newlines()
        return Function(name, (self.command(),))

    def group(self) -> Node:
        self.at += 1
        body = self.commands(frozenset({"}"}))
        self.expect("}")
        return Group(body)

    def test(self) -> Node:
        """Read `[[ ... ]]`: a condition, kept as a command of that name."""
        line = self.line
        words: list[Written | Assignment] = []
        while True:
            self.newlines()
            if self.at >= len(self.text):
                raise NoShellError("`]]` is missing")
            if self.text[self.at] in "&|()<>;":
                words.append(Written((Text(self.text[self.at]),), self.line, self.text[self.at]))
                self.at += 1
                continue
            word = self.word(pattern=True)
            words.append(word)
            if word.raw == "]]":
                return Simple(tuple(words), line)

    def arithmetic_command(self) -> Node:
        line = self.line
        self.at += 2
        start = self.at
        self.skip_arithmetic()
        raw = self.text[start : self.at - 2]
        return Simple(
            (Written((Text("(("),), line, "(("), Written((Text(raw, quoted=True),), line, raw)), line
        )

    def simple(self) -> Node:
        line = self.line
        assignments: list[Assignment] = []
        words: list[Written | Assignment] = []
        declares = False
        start, before = self.at, len(self._written)
        self._input, self._appends = None, False
        while True:
            self.blanks()
            if self.redirection():
                continue
            if self.at_break():
                break
            if not words or declares:
                assigned = self.assignment()
                if assigned:
                    (words or assignments).append(assigned)
                    continue
            word = self.word()
            if not words:
                declares = word.raw in _DECLARATIONS
            words.append(word)
        if self.at == start:
            raise NoShellError(
                f"`{self.text[self.at]}` is not expected here"
                if self.at < len(self.text)
                else "the script ends here"
            )
        written, self._written = self._written[before:], self._written[:before]
        return Simple(
            tuple(words),
            line,
            tuple(assignments),
            tuple(written),
            self._appends and bool(written),
            self._input,
        )

    def at_break(self) -> bool:
        """Return whether the command ends here. `<(...)` is a word."""
        end = self.at >= len(self.text) or self.text[self.at] in BREAK
        return end and not (self.peek("<(") or self.peek(">("))

    def words(self) -> list[Written]:
        """Read words up to the end of the command."""
        found: list[Written] = []
        while True:
            self.blanks()
            if self.at_break():
                return found
            found.append(self.word())

    def assignment(self) -> Assignment | None:
        match = _ASSIGNED.match(self.text, self.at)
        if not match:
            return None
        line = self.line
        self.at = match.end()
        name, index, append = match.group(1), match.group(2), bool(match.group(3))
        if self.peek("("):
            self.at += 1
            items: list[Written] = []
            while True:
                self.newlines()
                if self.at >= len(self.text):
                    raise NoShellError("the `)` of an array is missing")
                if self.peek(")"):
                    self.at += 1
                    return Assignment(name, line, items=tuple(items), append=append)
                items.append(self.word())
        place = _Parser(index[1:-1], line).all_parts() if index else None
        return Assignment(name, line, self.parts(), append=append, index=place)

    def redirections(self) -> None:
        self.blanks()
        while self.redirection():
            self.blanks()

    def redirection(self) -> bool:
        """Skip `> file`, `2>&1`, `<<EOF` and similar."""
        match = _REDIRECTION.match(self.text, self.at)
        if not match or self.text.startswith(("<(", ">("), match.end() - 1):
            return False
        self.at = match.end()
        self.blanks()
        if self.at >= len(self.text) or self.text[self.at] in "\n;&|)":
            raise NoShellError(f"the target of `{match.group()}` is missing")
        target, read = self.word(), None
        if match.group(1) in ("<<", "<<-"):
            word = "".join(part.text if isinstance(part, Text) else "" for part in target.parts)
            is_literal = any(part.quoted for part in target.parts)
            document = Input(None, self.line, opens_output=bool(self._written))
            self._waiting.append((word, match.group(1) == "<<-", is_literal, document))
            read = document
        elif match.group(1) == "<<<":
            read = Input((*target.parts, Text("\n", quoted=True)), target.line)
        elif match.group(1) == "<":
            read = Input(target.parts, target.line, is_file=True)
        elif match.group(1) in _WRITES:
            self._written.append(target)
            self._appends = self._appends or ">>" in match.group(1)
        if read is not None and match.group().rstrip("<-") in ("", "0"):
            self._input = read
        return True

    def parenthesised(self) -> str:
        """Skip `( ... )`, and return its content."""
        start = self.at + 1
        inside = _Parser(self.text, self.first_line)
        inside.at, inside.depth = start, self.depth
        inside._counted = self._counted
        inside.commands(frozenset())
        if not inside.peek(")"):
            raise NoShellError("`)` is missing")
        self.at = inside.at + 1
        return self.text[start : inside.at]


def words_of(text: str) -> list[Written]:
    """Split a text into words as the shell does.

    Empty when it is invalid, for instance because a quote is not closed.
    """
    parser = _Parser(text)
    try:
        return parser.words()
    except (NoShellError, RecursionError):
        return []

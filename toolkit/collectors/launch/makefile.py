"""Reads a makefile as GNU make does: the recipes that run for the requested targets, with make's variables replaced.

https://www.gnu.org/software/make/manual/make.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

NAMES = ("GNUmakefile", "makefile", "Makefile")
_WITH_VALUE = frozenset(
    {"-C", "-f", "-I", "-o", "-W", "-l", "-E", "--directory", "--file", "--makefile", "--eval"}
)
_ASSIGNMENT = re.compile(
    r"(?:override\s+)?(?P<name>[^\s:#=?+!$]+)\s*(?P<sign>:{0,3}=|\?=|\+=|!=)\s*(?P<value>.*)", re.DOTALL
)
_CONDITION = re.compile(r"(ifeq|ifneq|ifdef|ifndef)\b\s*(.*)")
_PAIR = re.compile(r"\((.*?),(.*)\)$|([\"'])(.*?)\3\s+([\"'])(.*?)\5$")
_RULE = re.compile(r"(?P<targets>[^:=]+?)\s*::?(?!=)\s*(?P<rest>.*)", re.DOTALL)
_SET_BY_MAKE = {"MAKE": "make", "SHELL": "/bin/sh", "RM": "rm -f", "MAKEFLAGS": "", "MFLAGS": ""}
_DEEPEST = 30


class NotFollowedError(Exception):
    """A makefile or a target that cannot be followed. The message gives a short reason."""


@dataclass(frozen=True)
class Recipe:
    """Commands that one shell runs: their text, the line where it begins, and the variables that make exports to them."""

    text: str
    line: int
    exported: Mapping[str, str | None]


@dataclass
class _Rule:
    before: list[str] = field(default_factory=list)
    recipe: list[tuple[int, str]] = field(default_factory=list)
    own: list[tuple[str, str, str, bool]] = field(default_factory=list)
    is_phony: bool = False


@dataclass
class Request:
    """The words after `make`: the folder and file, variables, and targets. `runs` is False with `-n` and the like."""

    folder: str = ""
    file: str = ""
    given: dict[str, str] = field(default_factory=dict)
    goals: list[str] = field(default_factory=list)
    runs: bool = True


def request_of(words: Sequence[str | None]) -> Request | None:
    """Parse the words after `make`; None if one that counts is unknown."""
    found, place = Request(), 0
    while place < len(words):
        word = words[place]
        if word is None:
            return None
        option, _, value = word.partition("=")
        attached = re.fullmatch(r"-([Cf])(.+)", word)
        if word in _WITH_VALUE or attached or option in ("--directory", "--file", "--makefile"):
            if attached:
                option, value = f"-{attached[1]}", attached[2]
            elif word in _WITH_VALUE:
                place += 1
                value = (words[place] if place < len(words) else None) or ""
            if option in ("-C", "--directory"):
                found.folder = value
            elif option in ("-f", "--file", "--makefile"):
                found.file = value
        elif re.fullmatch(r"-\w*[nqtv]\w*|--(?:dry-run|just-print|recon|question|touch|version|help)", word):
            found.runs = False
        elif word.startswith("-"):
            following = words[place + 1] if place + 1 < len(words) else None
            place += word in ("-j", "--jobs") and re.fullmatch(r"\d+", following or "") is not None
        elif match := re.fullmatch(r"([A-Za-z_][\w.-]*)\s*(?::{0,3}|\?|\+)=(.*)", word, re.DOTALL):
            found.given[match[1]] = match[2]
        else:
            found.goals.append(word)
        place += 1
    return found


class Makefile:
    """The variables and rules of a makefile. `load` returns the text of an included file, None if it does not exist."""

    def __init__(
        self,
        text: str,
        given: Mapping[str, str],
        environ: Callable[[str], str | None],
        load: Callable[[str], str | None],
    ) -> None:
        self.variables: dict[str, tuple[str, bool]] = {}
        self.given, self.environ, self.load = given, environ, load
        self.rules: dict[str, _Rule] = {}
        self.exported: dict[str, bool] = {}
        self.exports_all = self.is_one_shell = False
        self.has_patterns = False
        self.first = ""
        self.pieces: list[str] = []
        self._read(text)

    # Reading

    def _read(self, text: str, *, is_included: bool = False) -> None:
        lines, place = text.split("\n"), 0
        current: list[_Rule] = []
        taken: list[
            bool | None
        ] = []  # of each enclosing condition: whether its part is read; None: an earlier part was
        while place < len(lines):
            start, line = place, lines[place]
            while line.endswith("\\") and not line.endswith("\\\\") and place + 1 < len(lines):
                place += 1
                line += "\n" + lines[place]
            place += 1
            if line.startswith("\t") and current:
                if all(taken):
                    for rule in current:
                        rule.recipe.append((0 if is_included else start + 1, line[1:]))
                continue
            line = re.sub(r"\s*\\\n\s*", " ", _without_comment(line)).strip()
            if not line:
                continue
            if match := _CONDITION.match(line):
                taken.append(self._holds(match[1], match[2]) if all(taken) else None)
            elif re.match(r"else\b", line) and taken:
                nested = _CONDITION.match(line[4:].strip())
                if taken[-1] is False:
                    taken[-1] = self._holds(nested[1], nested[2]) if nested else True
                else:
                    taken[-1] = None
            elif re.match(r"endif\b", line) and taken:
                taken.pop()
            elif all(taken):
                current = self._line(line, start + 1)

    def _holds(self, kind: str, text: str) -> bool:
        if kind in ("ifdef", "ifndef"):
            name = self._known(text.strip())
            is_set = bool(self._raw(name)[0])
            return is_set == (kind == "ifdef")
        match = _PAIR.match(text.strip())
        if match is None:
            raise NotFollowedError(f"the condition `{kind} {text}` is not followed")
        left, right = (match[1], match[2]) if match[1] is not None else (match[4], match[6])
        return (self._known(left).strip() == self._known(right).strip()) == (kind == "ifeq")

    def _known(self, text: str) -> str:
        found = self.expanded(text)
        if "\1" in found:
            raise NotFollowedError(f"a condition depends on `{text.strip()}`")
        return found

    def _line(self, line: str, number: int) -> list[_Rule]:
        """Read a line outside of recipes; return the rules whose recipe may follow."""
        if match := re.match(r"(-|s)?include\s+(.*)", line):
            for name in self.expanded(match[2]).split():
                text = self.load(name)
                if text is not None:
                    self._read(text, is_included=True)
                elif not match[1]:
                    raise NotFollowedError(f"{name} is included, but does not exist")
            return []
        if re.match(r"(define|endef|vpath|load)\b", line):
            raise NotFollowedError(f"`{line.split(maxsplit=1)[0]}` is not followed")
        export = re.match(r"(unexport|export)\b\s*(.*)", line)
        if export and not _ASSIGNMENT.fullmatch(export[2]):
            if not export[2]:
                self.exports_all = export[1] == "export"
            for name in self.expanded(export[2]).split():
                self.exported[name] = export[1] == "export"
            return []
        if match := _ASSIGNMENT.fullmatch(export[2] if export else line):
            self._assign(match["name"], match["sign"], match["value"])
            if export:
                self.exported[match["name"]] = True
            return []
        match = _RULE.fullmatch(line)
        if match is None:
            return []
        targets, rest = self.expanded(match["targets"]).split(), match["rest"]
        own = re.match(r"(export\s+)?(.*)", rest, re.DOTALL)
        if own and (assigned := _ASSIGNMENT.fullmatch(own[2])):
            for name in targets:
                self.rules.setdefault(name, _Rule()).own.append(
                    (assigned["name"], assigned["sign"], assigned["value"], bool(own[1]))
                )
            return []
        before, semicolon, command = rest.partition(";")
        wanted = self.expanded(before).replace("|", " ").split()
        if targets and targets[0] in (".PHONY", ".ONESHELL"):
            self.is_one_shell = self.is_one_shell or targets[0] == ".ONESHELL"
            for name in wanted:
                self.rules.setdefault(name, _Rule()).is_phony = True
            return []
        self.has_patterns = self.has_patterns or any("%" in name or name == ".DEFAULT" for name in targets)
        found = []
        for name in targets:
            if not self.first and (not name.startswith(".") or "/" in name) and "%" not in name:
                self.first = name
            rule = self.rules.setdefault(name, _Rule())
            rule.before += wanted
            found.append(rule)
            if semicolon:
                rule.recipe.append((number, command.strip()))
        return found

    def _assign(self, name: str, sign: str, value: str, *, by_target: bool = False) -> None:
        if sign == "?=" and (name in self.variables or self.environ(name) is not None):
            return
        if sign == "!=":
            value, simple = self._piece(value), True
        elif sign in (":=", "::=", ":::="):
            value, simple = self.expanded(value), True
        else:
            simple = False
        if sign == "+=":
            before, simple = self._raw(name)
            value = f"{before} {self.expanded(value) if simple else value}".strip()
        if by_target or name not in self.given:
            self.variables[name] = value, simple

    # Variables

    def _raw(self, name: str) -> tuple[str, bool]:
        """Return the value of a variable, and whether it is expanded already."""
        if name in self.given:
            return self.given[name], False
        if name in self.variables:
            return self.variables[name]
        value = self.environ(name)
        if value is not None and name != "SHELL":
            return value, True
        return _SET_BY_MAKE.get(name, ""), True

    def _piece(self, command: str) -> str:
        """Return a mark in place of what a shell prints."""
        self.pieces.append(command)
        return f"\1{len(self.pieces) - 1}\1"

    def expanded(self, text: str, automatic: Mapping[str, str] | None = None, depth: int = 0) -> str:
        """Replace make's variables. What only a shell or a function of make can compute becomes a mark."""
        if depth > _DEEPEST:
            raise NotFollowedError("variables refer to each other")
        found, place = [], 0
        while place < len(text):
            sign = text[place]
            if sign != "$" or place + 1 == len(text):
                found.append(sign)
                place += 1
                continue
            following = text[place + 1]
            if following == "$":
                found.append("$")
                place += 2
            elif following in "({":
                end = _closing(text, place + 1)
                found.append(self._reference(text[place + 2 : end], automatic, depth))
                place = end + 1
            else:
                found.append(self._value(following, automatic, depth))
                place += 2
        return "".join(found)

    def _reference(self, inner: str, automatic: Mapping[str, str] | None, depth: int) -> str:
        name, space, rest = inner.partition(" ")
        if name == "shell" and space:
            return self._piece(self.expanded(rest, automatic, depth + 1))
        if name in ("strip", "info", "warning") and space:
            return " ".join(self.expanded(rest, automatic, depth + 1).split()) if name == "strip" else ""
        name = self.expanded(inner, automatic, depth + 1)
        if space or ":" in name or "\1" in name:
            return self._piece("make-function")
        return self._value(name, automatic, depth)

    def _value(self, name: str, automatic: Mapping[str, str] | None, depth: int) -> str:
        if automatic and name in automatic:
            return automatic[name]
        if name in ("^", "*", "?", "+", "%") or re.fullmatch(
            r"[@<^*?+%][DF]|MAKEFILE_LIST|MAKELEVEL|MAKECMDGOALS", name
        ):
            return self._piece("make-function")
        value, is_expanded = self._raw(name)
        return value if is_expanded else self.expanded(value, automatic, depth + 1)

    # Running

    def recipes(self, goals: Sequence[str], folder: str, is_there: Callable[[str], bool]) -> Iterator[Recipe]:
        """Yield what runs for these targets, those that they need first."""
        if not goals and not self.first:
            raise NotFollowedError("it has no target")
        done: set[str] = set()
        default = self._raw(".DEFAULT_GOAL")[0] or self.first
        for goal in goals or [default]:
            yield from self._of(goal, folder, is_there, done, ())

    def _of(
        self,
        target: str,
        folder: str,
        is_there: Callable[[str], bool],
        done: set[str],
        above: tuple[str, ...],
    ) -> Iterator[Recipe]:
        if target in done:
            return
        done.add(target)
        rule = self.rules.get(target)
        if rule is None:
            if not above and not self.has_patterns and not is_there(target):
                raise NotFollowedError(f"it has no rule for {target}: `No rule to make target '{target}'`")
            return
        kept, before = dict(self.variables), dict(self.exported)
        for name, sign, value, exports in rule.own:
            self._assign(name, sign, value)
            self.exported[name] = exports or self.exported.get(name, False)
        for name in rule.before:
            yield from self._of(name, folder, is_there, done, (*above, target))
        if rule.recipe and (rule.is_phony or not is_there(target)):
            automatic = {"@": target, "<": rule.before[0] if rule.before else "", "CURDIR": folder}
            lines = [(number, self.expanded(text, automatic)) for number, text in rule.recipe]
            if self.is_one_shell:
                lines = [(lines[0][0], "\n".join(text for _, text in lines))]
            exported = self._exported(automatic)
            for number, text in lines:
                command = re.sub(r"^[@+\s-]+", "", text)
                yield Recipe(self._shell(re.sub(r"\n\t", "\n", command)), number, exported)
        self.variables, self.exported = kept, before

    def _exported(self, automatic: Mapping[str, str]) -> dict[str, str | None]:
        names = {name for name, exports in self.exported.items() if exports} | set(self.given)
        if self.exports_all:
            names |= {name for name in self.variables if re.fullmatch(r"[A-Za-z_]\w*", name)}
        names |= {name for name in self.variables if self.environ(name) is not None}
        names -= {name for name, exports in self.exported.items() if not exports} | {"SHELL", "MAKEFLAGS"}
        values = {name: self._value(name, automatic, 0) for name in sorted(names)}
        return {name: None if "\1" in value else value for name, value in values.items()}

    def _shell(self, text: str) -> str:
        """Put command substitutions in place of the marks, outside of single quotes, where the shell expands nothing."""
        found, quote, place = [], "", 0
        while place < len(text):
            sign = text[place]
            if sign == "\1":
                end = text.index("\1", place + 1)
                command = f"$({self._shell(self.pieces[int(text[place + 1 : end])])})"
                found.append(f"'\"{command}\"'" if quote == "'" else command)
                place = end + 1
                continue
            if sign == "\\" and quote != "'":
                found.append(text[place : place + 2])
                place += 2
                continue
            if sign in "'\"" and quote in ("", sign):
                quote = "" if quote else sign
            found.append(sign)
            place += 1
        return "".join(found)


def _closing(text: str, start: int) -> int:
    """Return the place of the bracket that closes the one at `start`."""
    opening, depth = text[start], 0
    closing = ")" if opening == "(" else "}"
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    raise NotFollowedError("a reference to a variable is not closed")


def _without_comment(line: str) -> str:
    match = re.search(r"(?<!\\)#", line)
    return line[: match.start()] if match else line

"""The variables of a makefile, expanded as GNU make does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from verl_doctor.toolkit.sources.make.text import (
    FUNCTIONS,
    NotFollowedError,
    closing_bracket,
    split_arguments,
)

_SET_BY_MAKE = {"MAKE": "make", "SHELL": "/bin/sh", "RM": "rm -f", "MAKEFLAGS": "", "MFLAGS": ""}
# Variables whose values make computes, or that name the programs of its own rules.
_BY_MAKE = re.compile(
    r"MAKE_\w+|MAKEFILE_LIST|MAKEFILES|MAKELEVEL|MAKECMDGOALS|GNUMAKEFLAGS|SUFFIXES|\.(?:FEATURES"
    r"|INCLUDE_DIRS|VARIABLES|LOADED|LIBPATTERNS|SHELLFLAGS)|(?:COMPILE|LINK|LINT|LEX|YACC"
    r"|PREPROCESS)\.\w+|AR|ARFLAGS|AS|CC|CO|COFLAGS|CPP|CTANGLE|CWEAVE|CXX|FC|GET|LD|LEX|LINT|MAKEINFO"
    r"|OBJC|OUTPUT_OPTION|PC|TANGLE|TEX|WEAVE|YACC"
)
_AUTOMATIC = re.compile(r"[@<^*?+%|][DF]?")
_FUNCTION = re.compile(r"([a-z]+(?:-[a-z]+)?)[ \t]+(.*)", re.DOTALL)
_OTHER_FUNCTIONS = frozenset(
    {
        "patsubst",
        "sort",
        "wordlist",
        "dir",
        "notdir",
        "suffix",
        "basename",
        "join",
        "wildcard",
        "realpath",
        "abspath",
        "foreach",
        "file",
        "call",
        "value",
        "origin",
        "flavor",
        "guile",
    }
)
_COMPUTED = "make-function"  # stands for what a function of make results in
_LAZY = frozenset({"if", "or", "and"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_DEEPEST = 60
_MOST_WORK = 2_000_000  # characters that are expanded, all together


class Variables:
    """The variables of a makefile, and which of them reach the recipes.

    `given` are those of make's command line, which the makefile cannot change. What only a shell or a
    function of make can compute becomes a mark: a number between two control characters.
    """

    def __init__(self, given: Mapping[str, str], environ: Callable[[str], str | None], folder: str) -> None:
        self.values: dict[str, tuple[str, bool]] = {"CURDIR": (folder, True)}
        self.given, self.environ = dict(given), environ
        self.exported: dict[str, bool] = {}
        self.exports_all = False
        self.pieces: list[str] = []
        self.around: list[str] = []  # variables that are being expanded
        self.work = 0

    def is_set(self, name: str) -> bool:
        """Return whether a variable has a value, as `ifdef` decides."""
        return bool(self._raw(name)[0])

    def has_computed(self, text: str) -> bool:
        """Return whether an expanded text has a part that only a function of make can compute."""
        return any(self.pieces[int(place)] == _COMPUTED for place in re.findall("\1(\\d+)\1", text))

    def known(self, text: str) -> str:
        """Expand what a condition compares."""
        found = self.expanded(text)
        if "\1" in found:
            raise NotFollowedError(f"a condition depends on `{text.strip()}`")
        return found

    def settled(self, text: str, line: str) -> str:
        """Expand what must be known."""
        found = self.expanded(text)
        if "\1" in found:
            raise NotFollowedError(f"`{line.strip()}` is not followed: it depends on a function or a command")
        return found

    def assign(self, name: str, sign: str, value: str, *, overrides: bool = False) -> None:
        """Assign a value with one of make's signs. `overrides`: even over the command line."""
        if name == ".RECIPEPREFIX":
            raise NotFollowedError("`.RECIPEPREFIX` is not followed")
        if sign == "?=" and (name in self.values or self.environ(name) is not None):
            return
        if sign == "!=":
            value, simple = self._piece(self.expanded(value)), True
        elif sign in (":=", "::=", ":::="):
            value, simple = self.expanded(value), True
        else:
            simple = False
        if sign == "+=":
            before, simple = self._raw(name)
            if name not in self.values and name not in self.given:
                before, simple = before.replace("$", "$$"), False
            added = self.expanded(value) if simple else value
            value = f"{before} {added}" if before and added else before or added
        if name == "SHELL" and self.expanded(value).strip().rpartition("/")[2] not in _SHELLS:
            raise NotFollowedError(f"recipes for the shell `{value.strip()}` are not followed")
        if overrides and name in self.given:
            self.given[name] = value.replace("$", "$$") if simple else value
        elif name not in self.given:
            self.values[name] = value, simple

    def _raw(self, name: str) -> tuple[str, bool]:
        """Return the value of a variable, and whether it is expanded already."""
        if name in self.given:
            return self.given[name], False
        if name in self.values:
            return self.values[name]
        value = self.environ(name)
        if value is not None and name != "SHELL":
            return value, True
        if _BY_MAKE.fullmatch(name):
            return self._piece(_COMPUTED), True
        return _SET_BY_MAKE.get(name, ""), True

    def _piece(self, command: str) -> str:
        """Return a mark in place of what a shell prints."""
        self.pieces.append(command)
        return f"\1{len(self.pieces) - 1}\1"

    def expanded(self, text: str, automatic: Mapping[str, str] | None = None, depth: int = 0) -> str:
        """Replace make's variables. What only a shell or a function of make can compute becomes a mark."""
        if depth > _DEEPEST:
            raise NotFollowedError("references to variables are nested too deep")
        self.work += len(text) + 1
        if self.work > _MOST_WORK:
            raise NotFollowedError("its variables become too long")
        if "$" not in text:
            return text
        found, place = [], 0
        while place < len(text):
            sign = text[place]
            if sign != "$" or place + 1 == len(text):
                end = text.find("$", place + 1)
                end = len(text) if end < 0 else end
                found.append(text[place:end])
                place = end
                continue
            following = text[place + 1]
            if following == "$":
                found.append("$")
                place += 2
            elif following in "({":
                end = closing_bracket(text, place + 1)
                found.append(self._reference(text[place + 2 : end], following, automatic, depth))
                place = end + 1
            else:
                found.append(self.value(following, automatic, depth))
                place += 2
        return "".join(found)

    def _reference(self, inner: str, opening: str, automatic: Mapping[str, str] | None, depth: int) -> str:
        match = _FUNCTION.fullmatch(inner)
        if match and match[1] in ("eval", "error"):
            raise NotFollowedError(f"`$({match[1]} ...)` is not followed")
        if match and match[1] == "shell":
            return self._piece(self.expanded(match[2], automatic, depth + 1))
        if match and match[1] in ("info", "warning"):
            self.expanded(match[2], automatic, depth + 1)
            return ""
        if match and (match[1] in FUNCTIONS or match[1] in _LAZY):
            return self._function(match[1], split_arguments(match[2], opening), automatic, depth)
        if match and match[1] in _OTHER_FUNCTIONS:
            self.expanded(match[2], automatic, depth + 1)  # it may contain `eval`
            if match[1] == "call":
                name = self.expanded(split_arguments(match[2], opening)[0], automatic, depth + 1).strip()
                self.value(name, automatic, depth)
            return self._piece("make-wildcard" if match[1] == "wildcard" else _COMPUTED)
        name = self.expanded(inner, automatic, depth + 1)
        if ":" in name or "\1" in name:
            self.value(name.partition(":")[0], automatic, depth)
            return self._piece(_COMPUTED)
        return self.value(name, automatic, depth)

    def _function(
        self, name: str, arguments: list[str], automatic: Mapping[str, str] | None, depth: int
    ) -> str:
        """Return what a function of make results in."""

        def value(text: str) -> str:
            return self.expanded(text, automatic, depth + 1)

        if name == "if" and len(arguments) > 1:
            condition = value(arguments[0].strip())
            if "\1" not in condition:
                chosen = arguments[1] if condition else ",".join(arguments[2:])
                return value(chosen)
        elif name in ("or", "and"):
            found = ""
            for argument in arguments:
                found = value(argument.strip())
                if "\1" in found:
                    break
                if bool(found) == (name == "or"):
                    return found
            else:
                return found
        elif name in FUNCTIONS:
            count, function = FUNCTIONS[name]
            merged = [*arguments[: count - 1], ",".join(arguments[count - 1 :])]
            values = [value(argument) for argument in merged]
            if len(arguments) >= count and not any("\1" in text for text in values):
                return function(*values)
        for argument in arguments:
            value(argument)  # it may contain `eval`
        return self._piece(_COMPUTED)

    def value(self, name: str, automatic: Mapping[str, str] | None = None, depth: int = 0) -> str:
        """Return the expanded value of a variable."""
        if automatic and name in automatic:
            return automatic[name]
        if _AUTOMATIC.fullmatch(name):  # empty outside of recipes
            return self._piece(_COMPUTED) if automatic else ""
        value, is_expanded = self._raw(name)
        if is_expanded:
            self.work += len(value)
            return value
        if name in self.around:
            raise NotFollowedError("variables refer to each other")
        self.around.append(name)
        try:
            return self.expanded(value, automatic, depth + 1)
        finally:
            self.around.pop()

    def exports(self, automatic: Mapping[str, str]) -> dict[str, str | None]:
        """Return what make exports to a recipe; None for a value that only a shell can compute."""
        names = {name for name, exports in self.exported.items() if exports} | set(self.given)
        if self.exports_all:
            names |= {name for name in self.values if re.fullmatch(r"[A-Za-z_]\w*", name)}
        names |= {name for name in self.values if self.environ(name) is not None}
        names -= {name for name, exports in self.exported.items() if not exports}
        names -= {"SHELL", "MAKEFLAGS", "CURDIR"}
        values = {name: self.value(name, automatic, 0) for name in sorted(names)}
        return {name: None if "\1" in value else value for name, value in values.items()}

    def for_shell(self, text: str) -> str:
        """Put command substitutions in place of the marks, outside of single quotes.

        In single quotes, the shell expands nothing.
        """
        found, quote, place = [], "", 0
        while place < len(text):
            sign = text[place]
            if sign == "\1":
                end = text.index("\1", place + 1)
                command = f"$({self.for_shell(self.pieces[int(text[place + 1 : end])])})"
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

"""Reads a makefile as GNU make does: recipes that run for the requested targets, variables replaced.

The variables are those of make.

https://www.gnu.org/software/make/manual/make.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from verl_doctor.toolkit.sources.make.text import (
    FUNCTIONS,
    NotFollowedError,
    closing_bracket,
    colon_of_rule,
    compared,
    split_arguments,
    without_comment,
)

NAMES = ("GNUmakefile", "makefile", "Makefile")
_ASSIGNMENT = re.compile(
    r"(?P<override>override\s+)?(?P<name>[^\s:#=?+!$]+)\s*(?P<sign>:{0,3}=|\?=|\+=|!=)\s*(?P<value>.*)",
    re.DOTALL,
)
_CONDITION = re.compile(r"(ifeq|ifneq|ifdef|ifndef)\b\s*(.*)")
_NOT_FOLLOWED = re.compile(r"(?:(?:override|export)\s+)*(define|endef|undefine|vpath|-?load|private)(?=\s|$)")
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
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_DEEPEST = 60
_MOST_WORK = 2_000_000  # characters that are expanded, all together


@dataclass(frozen=True)
class Recipe:
    """Commands that one shell runs: text, line where it begins, and variables that make exports to them."""

    text: str
    line: int
    exported: Mapping[str, str | None]


@dataclass
class _Rule:
    before: list[str] = field(default_factory=list)
    only_order: list[str] = field(default_factory=list)  # their age does not count
    recipe: list[tuple[int, str]] = field(default_factory=list)
    own: list[tuple[str, str, str, bool]] = field(default_factory=list)
    is_phony: bool = False
    is_double: bool | None = None  # written with `::`; None: a rule has not been read
    others: list[_Rule] = field(default_factory=list)  # further rules with `::`


class Makefile:
    """The variables and rules of a makefile.

    `load` returns the text of an included file, None if it does not exist.
    """

    def __init__(
        self,
        text: str,
        given: Mapping[str, str],
        environ: Callable[[str], str | None],
        load: Callable[[str], str | None],
        folder: str = "",
    ) -> None:
        self.variables: dict[str, tuple[str, bool]] = {"CURDIR": (folder, True)}
        self.given, self.environ, self.load = dict(given), environ, load
        self.rules: dict[str, _Rule] = {}
        self.exported: dict[str, bool] = {}
        self.exports_all = self.is_one_shell = False
        self.patterns: dict[str, _Rule] = {}
        self.first = ""
        self.pieces: list[str] = []
        self.around: list[str] = []  # variables that are being expanded
        self.work = 0
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
            line = without_comment(re.sub(r"\s*\\\n\s*", " ", line)).lstrip()
            if not line.strip():
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
        pair = compared(text.strip())
        if pair is None:
            raise NotFollowedError(f"the condition `{kind} {text}` is not followed")
        return (self._known(pair[0]) == self._known(pair[1])) == (kind == "ifeq")

    def _known(self, text: str) -> str:
        found = self.expanded(text)
        if "\1" in found:
            raise NotFollowedError(f"a condition depends on `{text.strip()}`")
        return found

    def _line(self, line: str, number: int) -> list[_Rule]:
        """Read a line outside of recipes; return the rules whose recipe may follow."""
        if match := re.match(r"(-|s)?include\s+(.*)", line):
            names = self.expanded(match[2])
            if re.search(r"[*?\[\1]", names):
                raise NotFollowedError(
                    f"`{line.strip()}` is not followed: it depends on which files there are"
                )
            for name in names.split():
                text = self.load(name)
                if text is not None:
                    self._read(text, is_included=True)
                elif not match[1]:
                    raise NotFollowedError(f"{name} is included, but does not exist")
            return []
        if (match := _NOT_FOLLOWED.match(line)) and not _ASSIGNMENT.fullmatch(line):
            raise NotFollowedError(f"`{match[1]}` is not followed")
        export = re.match(r"(unexport|export)\b\s*(.*)", line)
        if export and not _ASSIGNMENT.fullmatch(export[2]):
            if not export[2]:
                self.exports_all = export[1] == "export"
            for name in self._settled(export[2], line).split():
                self.exported[name] = export[1] == "export"
            return []
        if match := _ASSIGNMENT.fullmatch(export[2] if export else line):
            self._assign(
                match["name"], match["sign"], match["value"], overrides=match["override"] is not None
            )
            if export:
                self.exported[match["name"]] = True
            return []
        place = colon_of_rule(line)
        if place is None:
            if self._settled(line, line).strip():
                raise NotFollowedError(f"`{line.strip()}` is not followed")
            return []
        is_double = line.startswith("::", place)
        targets = self._settled(line[:place], line).split()
        return self._rule(targets, line[place + 1 + is_double :].lstrip(), number, is_double=is_double)

    def _rule(self, targets: list[str], rest: str, number: int, *, is_double: bool) -> list[_Rule]:
        """Read what follows the colon."""
        words = re.match(r"((?:(?:export|override|private)\s+)*)(.*)", rest, re.DOTALL)
        if words and (assigned := _ASSIGNMENT.fullmatch(words[2])):
            if "private" in words[1] or any("%" in name for name in targets) or "override" in words[1]:
                raise NotFollowedError(f"`{' '.join(targets)}: {rest.strip()}` is not followed")
            for name in targets:
                self.rules.setdefault(name, _Rule()).own.append(
                    (assigned["name"], assigned["sign"], assigned["value"], "export" in words[1])
                )
            return []
        before, semicolon, command = rest.partition(";")
        needs = self.expanded(before)
        if any(self.pieces[int(place)] == _COMPUTED for place in re.findall("\1(\\d+)\1", needs)):
            self._settled(before, rest)
        normal, _, order = needs.partition("|")
        if ":" in normal:
            raise NotFollowedError(f"the static pattern rule of {' '.join(targets)} is not followed")
        wanted, only_order = normal.split(), order.split()
        special = targets[0] if targets else ""
        if special in (".PHONY", ".ONESHELL", ".EXPORT_ALL_VARIABLES"):
            self.is_one_shell = self.is_one_shell or special == ".ONESHELL"
            self.exports_all = self.exports_all or special == ".EXPORT_ALL_VARIABLES"
            for name in wanted if special == ".PHONY" else ():
                self.rules.setdefault(name, _Rule()).is_phony = True
            return []
        if special in (".SECONDEXPANSION", ".DEFAULT"):
            raise NotFollowedError(f"`{special}` is not followed")
        found = []
        for name in targets:
            if not self.first and (not name.startswith(".") or "/" in name) and "%" not in name:
                self.first = name
            rule = self._new(name, is_double=is_double)
            # make puts what the rule with the recipe needs first; which rule that is, shows only later
            rule.before, rule.only_order = list(wanted), list(only_order)
            rule.recipe = [(number, command.strip())] if semicolon else []
            found.append(rule)
        return found

    def _new(self, name: str, *, is_double: bool) -> _Rule:
        """Return the part that a rule adds to a target."""
        owner = (self.patterns if "%" in name else self.rules).setdefault(name, _Rule())
        if owner.is_double not in (None, is_double):
            raise NotFollowedError(f"{name} has rules with `:` and with `::`")
        owner.is_double = is_double
        part = _Rule()
        owner.others.append(part)
        return part

    def _settled(self, text: str, line: str) -> str:
        """Expand what must be known."""
        found = self.expanded(text)
        if "\1" in found:
            raise NotFollowedError(f"`{line.strip()}` is not followed: it depends on a function or a command")
        return found

    def _assign(self, name: str, sign: str, value: str, *, overrides: bool = False) -> None:
        if name == ".RECIPEPREFIX":
            raise NotFollowedError("`.RECIPEPREFIX` is not followed")
        if sign == "?=" and (name in self.variables or self.environ(name) is not None):
            return
        if sign == "!=":
            value, simple = self._piece(self.expanded(value)), True
        elif sign in (":=", "::=", ":::="):
            value, simple = self.expanded(value), True
        else:
            simple = False
        if sign == "+=":
            before, simple = self._raw(name)
            if name not in self.variables and name not in self.given:
                before, simple = before.replace("$", "$$"), False
            added = self.expanded(value) if simple else value
            value = f"{before} {added}" if before and added else before or added
        if name == "SHELL" and self.expanded(value).strip().rpartition("/")[2] not in _SHELLS:
            raise NotFollowedError(f"recipes for the shell `{value.strip()}` are not followed")
        if overrides and name in self.given:
            self.given[name] = value.replace("$", "$$") if simple else value
        elif name not in self.given:
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
                found.append(self._value(following, automatic, depth))
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
                self._value(name, automatic, depth)
            return self._piece("make-wildcard" if match[1] == "wildcard" else _COMPUTED)
        name = self.expanded(inner, automatic, depth + 1)
        if ":" in name or "\1" in name:
            self._value(name.partition(":")[0], automatic, depth)
            return self._piece(_COMPUTED)
        return self._value(name, automatic, depth)

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

    def _value(self, name: str, automatic: Mapping[str, str] | None, depth: int) -> str:
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

    # Running

    def recipes(self, goals: Sequence[str], folder: str, is_there: Callable[[str], bool]) -> Iterator[Recipe]:
        """Yield what runs for these targets, those that they need first."""
        if not goals and not self.first:
            raise NotFollowedError("it has no target")
        done: set[str] = set()
        default = self._value(".DEFAULT_GOAL", None, 0).strip() or self.first
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
        rule = self.rules.get(target, _Rule())
        parts, stem = _joined(rule), ""
        if not rule.is_phony and not any(part.recipe for part in parts):
            match = self._pattern(target)
            if match is not None:
                pattern, stem = match
                parts = [replace(part, recipe=pattern.recipe) for part in parts or [_Rule()]]
            elif target not in self.rules:
                if not above and not is_there(target):
                    raise NotFollowedError(
                        f"it has no rule for {target}: `No rule to make target '{target}'`"
                    )
                return
        kept, before = dict(self.variables), dict(self.exported)
        for name, sign, value, exports in rule.own:
            self._assign(name, sign, value)
            self.exported[name] = exports or self.exported.get(name, False)
        for whole in parts:
            circle = {*above, target}  # make drops what would close it
            part = replace(whole, before=[name for name in whole.before if name not in circle])
            needs = [name for name in (*part.before, *part.only_order) if "\1" not in name]  # else files
            for name in needs:
                yield from self._of(name, folder, is_there, done, (*above, target))
            if part.recipe and (rule.is_phony or self._is_old(target, part, is_there, bool(rule.is_double))):
                automatic = {"@": target, "<": part.before[0] if part.before else "", "CURDIR": folder}
                yield from self._run(part, {**automatic, "*": stem} if stem else automatic)
        self.variables, self.exported = kept, before

    def _run(self, rule: _Rule, automatic: Mapping[str, str]) -> Iterator[Recipe]:
        lines = [
            (number, re.sub(r"^[@+\s-]+", "", self.expanded(text, automatic))) for number, text in rule.recipe
        ]
        if self.is_one_shell:
            lines = [(lines[0][0], "\n".join(text for _, text in lines))]
        exported = self._exported(automatic)
        for number, text in lines:
            yield Recipe(self._shell(re.sub(r"\n\t", "\n", text)), number, exported)

    def _is_old(self, target: str, rule: _Rule, is_there: Callable[[str], bool], is_double: bool) -> bool:
        """Return whether make runs the recipe of a target that is a file.

        Only as far as that does not depend on the age of files.
        """
        if not is_there(target) or (is_double and not rule.before):
            return True
        for name in rule.before:
            needed = self.rules.get(name)
            if needed and (needed.is_phony or not is_there(name)):
                return True
        if rule.before:
            raise NotFollowedError(
                f"{target} exists, and whether it is up to date depends on the age of files"
            )
        return False

    def _pattern(self, target: str) -> tuple[_Rule, str] | None:
        """Return the pattern rule with a recipe that makes a target, and what `%` stands for."""
        found: list[tuple[_Rule, str]] = []
        for name, rule in self.patterns.items():
            start, _, end = name.partition("%")
            stem = target[len(start) : len(target) - len(end)]
            recipes = [part for part in rule.others if part.recipe]
            if not recipes or not stem or f"{start}{stem}{end}" != target:
                continue
            if (
                len(rule.others) > 1
                or rule.is_double
                or recipes[0].before
                or recipes[0].only_order
                or "/" in target
            ):
                raise NotFollowedError(f"the pattern rule `{name}` is not followed")
            found.append((recipes[0], stem))
        return min(found, key=lambda match: len(match[1]), default=None)

    def _exported(self, automatic: Mapping[str, str]) -> dict[str, str | None]:
        names = {name for name, exports in self.exported.items() if exports} | set(self.given)
        if self.exports_all:
            names |= {name for name in self.variables if re.fullmatch(r"[A-Za-z_]\w*", name)}
        names |= {name for name in self.variables if self.environ(name) is not None}
        names -= {name for name, exports in self.exported.items() if not exports}
        names -= {"SHELL", "MAKEFLAGS", "CURDIR"}
        values = {name: self._value(name, automatic, 0) for name in sorted(names)}
        return {name: None if "\1" in value else value for name, value in values.items()}

    def _shell(self, text: str) -> str:
        """Put command substitutions in place of the marks, outside of single quotes.

        In single quotes, the shell expands nothing.
        """
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


def _joined(rule: _Rule) -> list[_Rule]:
    """Return what make makes of the rules of one target.

    With `:`, the last recipe counts, and its rule's needs come first.
    """
    if rule.is_double or not rule.others:
        return rule.others
    found = _Rule()
    for part in rule.others:
        if part.recipe:
            found.recipe = part.recipe
            found.before, found.only_order = part.before + found.before, part.only_order + found.only_order
        else:
            found.before, found.only_order = found.before + part.before, found.only_order + part.only_order
    return [found]


_LAZY = frozenset({"if", "or", "and"})

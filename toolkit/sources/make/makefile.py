"""Reads a makefile as GNU make does: its rules, with the variables of make replaced.

https://www.gnu.org/software/make/manual/make.html
"""

from __future__ import annotations

import re
from collections.abc import Callable

from verl_doctor.toolkit.sources.make.rule import Rule
from verl_doctor.toolkit.sources.make.text import (
    NotFollowedError,
    colon_of_rule,
    compared,
    without_comment,
)
from verl_doctor.toolkit.sources.make.variables import Variables

NAMES = ("GNUmakefile", "makefile", "Makefile")
_ASSIGNMENT = re.compile(
    r"(?P<override>override\s+)?(?P<name>[^\s:#=?+!$]+)\s*(?P<sign>:{0,3}=|\?=|\+=|!=)\s*(?P<value>.*)",
    re.DOTALL,
)
_CONDITION = re.compile(r"(ifeq|ifneq|ifdef|ifndef)\b\s*(.*)")
_NOT_FOLLOWED = re.compile(r"(?:(?:override|export)\s+)*(define|endef|undefine|vpath|-?load|private)(?=\s|$)")


class Makefile:
    """The variables and rules of a makefile.

    `load` returns the text of an included file, None if it does not exist. `first` is the default target.
    """

    def __init__(self, text: str, variables: Variables, load: Callable[[str], str | None]) -> None:
        self.variables, self.load = variables, load
        self.rules: dict[str, Rule] = {}
        self.patterns: dict[str, Rule] = {}
        self.first = ""
        self.is_one_shell = False
        self._read(text)

    def _read(self, text: str, *, is_included: bool = False) -> None:
        lines, place = text.split("\n"), 0
        current: list[Rule] = []
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
            return self.variables.is_set(self.variables.known(text.strip())) == (kind == "ifdef")
        pair = compared(text.strip())
        if pair is None:
            raise NotFollowedError(f"the condition `{kind} {text}` is not followed")
        return (self.variables.known(pair[0]) == self.variables.known(pair[1])) == (kind == "ifeq")

    def _line(self, line: str, number: int) -> list[Rule]:
        """Read a line outside of recipes; return the rules whose recipe may follow."""
        if match := re.match(r"(-|s)?include\s+(.*)", line):
            names = self.variables.expanded(match[2])
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
                self.variables.exports_all = export[1] == "export"
            for name in self.variables.settled(export[2], line).split():
                self.variables.exported[name] = export[1] == "export"
            return []
        if match := _ASSIGNMENT.fullmatch(export[2] if export else line):
            self.variables.assign(
                match["name"], match["sign"], match["value"], overrides=match["override"] is not None
            )
            if export:
                self.variables.exported[match["name"]] = True
            return []
        place = colon_of_rule(line)
        if place is None:
            if self.variables.settled(line, line).strip():
                raise NotFollowedError(f"`{line.strip()}` is not followed")
            return []
        is_double = line.startswith("::", place)
        targets = self.variables.settled(line[:place], line).split()
        return self._rule(targets, line[place + 1 + is_double :].lstrip(), number, is_double=is_double)

    def _rule(self, targets: list[str], rest: str, number: int, *, is_double: bool) -> list[Rule]:
        """Read what follows the colon."""
        words = re.match(r"((?:(?:export|override|private)\s+)*)(.*)", rest, re.DOTALL)
        if words and (assigned := _ASSIGNMENT.fullmatch(words[2])):
            if "private" in words[1] or any("%" in name for name in targets) or "override" in words[1]:
                raise NotFollowedError(f"`{' '.join(targets)}: {rest.strip()}` is not followed")
            for name in targets:
                self.rules.setdefault(name, Rule()).own.append(
                    (assigned["name"], assigned["sign"], assigned["value"], "export" in words[1])
                )
            return []
        before, semicolon, command = rest.partition(";")
        needs = self.variables.expanded(before)
        if self.variables.has_computed(needs):
            self.variables.settled(before, rest)
        normal, _, order = needs.partition("|")
        if ":" in normal:
            raise NotFollowedError(f"the static pattern rule of {' '.join(targets)} is not followed")
        wanted, only_order = normal.split(), order.split()
        special = targets[0] if targets else ""
        if special in (".PHONY", ".ONESHELL", ".EXPORT_ALL_VARIABLES"):
            self.is_one_shell = self.is_one_shell or special == ".ONESHELL"
            self.variables.exports_all = self.variables.exports_all or special == ".EXPORT_ALL_VARIABLES"
            for name in wanted if special == ".PHONY" else ():
                self.rules.setdefault(name, Rule()).is_phony = True
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

    def _new(self, name: str, *, is_double: bool) -> Rule:
        """Return the part that a rule adds to a target."""
        owner = (self.patterns if "%" in name else self.rules).setdefault(name, Rule())
        if owner.is_double not in (None, is_double):
            raise NotFollowedError(f"{name} has rules with `:` and with `::`")
        owner.is_double = is_double
        part = Rule()
        owner.others.append(part)
        return part

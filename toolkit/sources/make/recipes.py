"""The recipes that make runs for the requested targets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.sources.make.makefile import Makefile
from verl_doctor.toolkit.sources.make.rule import Rule, joined
from verl_doctor.toolkit.sources.make.text import NotFollowedError


@dataclass(frozen=True)
class Recipe:
    """Commands that one shell runs: text, line where it begins, and variables that make exports to them."""

    text: str
    line: int
    exported: Mapping[str, str | None]


class Run:
    """One run of make in a folder, of which `is_there` reports what files it has."""

    def __init__(self, makefile: Makefile, folder: str, is_there: Callable[[str], bool]) -> None:
        self.makefile, self.folder, self.is_there = makefile, folder, is_there
        self.variables = makefile.variables
        self.done: set[str] = set()

    def recipes(self, goals: Sequence[str]) -> Iterator[Recipe]:
        """Yield what runs for these targets, those that they need first.

        Raises NotFollowedError for what this reader does not follow.
        """
        if not goals and not self.makefile.first:
            raise NotFollowedError("it has no target")
        default = self.variables.value(".DEFAULT_GOAL").strip() or self.makefile.first
        for goal in goals or [default]:
            yield from self._of(goal, ())

    def _of(self, target: str, above: tuple[str, ...]) -> Iterator[Recipe]:
        if target in self.done:
            return
        self.done.add(target)
        rule = self.makefile.rules.get(target, Rule())
        parts, stem = joined(rule), ""
        if not rule.is_phony and not any(part.recipe for part in parts):
            match = self._pattern(target)
            if match is not None:
                pattern, stem = match
                parts = [replace(part, recipe=pattern.recipe) for part in parts or [Rule()]]
            elif target not in self.makefile.rules:
                if not above and not self.is_there(target):
                    raise NotFollowedError(
                        f"it has no rule for {target}: `No rule to make target '{target}'`"
                    )
                return
        kept, before = dict(self.variables.values), dict(self.variables.exported)
        for name, sign, value, exports in rule.own:
            self.variables.assign(name, sign, value)
            self.variables.exported[name] = exports or self.variables.exported.get(name, False)
        for whole in parts:
            circle = {*above, target}  # make drops what would close it
            part = replace(whole, before=[name for name in whole.before if name not in circle])
            needs = [name for name in (*part.before, *part.only_order) if "\1" not in name]  # else files
            for name in needs:
                yield from self._of(name, (*above, target))
            if part.recipe and (rule.is_phony or self._is_old(target, part, is_double=bool(rule.is_double))):
                automatic = {"@": target, "<": part.before[0] if part.before else "", "CURDIR": self.folder}
                yield from self._run(part, {**automatic, "*": stem} if stem else automatic)
        self.variables.values, self.variables.exported = kept, before

    def _run(self, rule: Rule, automatic: Mapping[str, str]) -> Iterator[Recipe]:
        lines = [
            (number, re.sub(r"^[@+\s-]+", "", self.variables.expanded(text, automatic)))
            for number, text in rule.recipe
        ]
        if self.makefile.is_one_shell:
            lines = [(lines[0][0], "\n".join(text for _, text in lines))]
        exported = self.variables.exports(automatic)
        for number, text in lines:
            yield Recipe(self.variables.for_shell(re.sub(r"\n\t", "\n", text)), number, exported)

    def _is_old(self, target: str, rule: Rule, *, is_double: bool) -> bool:
        """Return whether make runs the recipe of a target that is a file.

        Only as far as that does not depend on the age of files.
        """
        if not self.is_there(target) or (is_double and not rule.before):
            return True
        for name in rule.before:
            needed = self.makefile.rules.get(name)
            if needed and (needed.is_phony or not self.is_there(name)):
                return True
        if rule.before:
            raise NotFollowedError(
                f"{target} exists, and whether it is up to date depends on the age of files"
            )
        return False

    def _pattern(self, target: str) -> tuple[Rule, str] | None:
        """Return the pattern rule with a recipe that makes a target, and what `%` stands for."""
        found: list[tuple[Rule, str]] = []
        for name, rule in self.makefile.patterns.items():
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

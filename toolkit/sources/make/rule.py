"""A rule of a makefile."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Rule:
    """What the rules of one target, or of one pattern, have: needs, recipe, variables of their own."""

    before: list[str] = field(default_factory=list)
    only_order: list[str] = field(default_factory=list)  # their age does not count
    recipe: list[tuple[int, str]] = field(default_factory=list)
    own: list[tuple[str, str, str, bool]] = field(default_factory=list)
    is_phony: bool = False
    is_double: bool | None = None  # written with `::`; None: a rule has not been read
    others: list[Rule] = field(default_factory=list)  # further rules with `::`


def joined(rule: Rule) -> list[Rule]:
    """Return what make makes of the rules of one target.

    With `:`, the last recipe counts, and its rule's needs come first.
    """
    if rule.is_double or not rule.others:
        return rule.others
    found = Rule()
    for part in rule.others:
        if part.recipe:
            found.recipe = part.recipe
            found.before, found.only_order = part.before + found.before, part.only_order + found.only_order
        else:
            found.before, found.only_order = found.before + part.before, found.only_order + part.only_order
    return [found]

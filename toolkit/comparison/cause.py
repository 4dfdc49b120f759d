"""Find the difference that causes a finding: one value is restored, and the rule is run again.

If the rule no longer finds the fault, that difference is the cause: this is tested, not guessed from names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, cast

from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.collectors.ray.fleet import Fleet
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.put_back import put_back, whole_facts
from verl_doctor.toolkit.comparison.subjects import LEAD
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.judge import Selection, facts_of, judge_one
from verl_doctor.toolkit.facts import F, Unknown
from verl_doctor.toolkit.rule import Check, Finding

_TRIED = 40
"""The maximum number of differences tried for one finding; those that it names come first."""

_VARYING = re.compile(r"(?:~?/)[^\s:,;'\")]*|\d[\w.]*")


Key = tuple[str, ...]
"""What two findings of the same fault have in common (`key_of`)."""

# In the name of a subject: a path, or a word that begins with a digit. "eth0" and "vllm.v1" are names.
_VARYING_NAME = re.compile(r"(?<![\w./~-])(?:~?/[^\s:,;'\")]*|\d[\w.+-]*)")
# Subjects with different names on each machine.
_OF_ONE_MACHINE = frozenset({"address", "device", "node", "port", "process"})


def key_of(code: str, finding: Finding) -> Key:
    """Return what one fault's findings share on two machines: rule, and subject without paths and numbers.

    A finding without a subject, which a plugin may have, is identified by its text.
    """
    subject = finding.subject
    if subject is None:
        return code, _VARYING.sub("#", finding.message)
    name = "#" if subject.kind in _OF_ONE_MACHINE else _VARYING_NAME.sub("#", subject.name)
    return code, subject.kind, name, _VARYING_NAME.sub("#", subject.detail)


class _WithOneBack:
    """The new facts with one value as it was before."""

    def __init__(self, facts: Facts, changed: Mapping[type, Any]) -> None:
        self._facts = facts
        self._changed = changed

    def get(self, fact: type[F]) -> F | Unknown:
        """Return the fact, changed or not."""
        return cast("F | Unknown", self._changed.get(fact) or self._facts.get(fact))


def cause_of(
    finding: Finding,
    check: Check,
    found: Sequence[Difference],
    old: Facts,
    new: Facts,
    selection: Selection,
) -> Difference | None:
    """Return the difference without which the rule has no such finding, None if no single one is known."""
    wanted = list(facts_of([check]))
    concerned = [difference for difference in found if difference.kind != "fact"]
    named = [difference for difference in concerned if _names(finding, difference.subject)]
    others = [difference for difference in concerned if difference not in named and _read(difference, wanted)]
    if Requirements in wanted:  # derived from the packages
        others = [entry for entry in concerned if entry.kind == "package" and entry not in named]
    if (release := _release_of(finding, concerned)) is not None:
        return release
    for difference in [*named, *others][:_TRIED]:
        ways = [put_back(difference, wanted, old, new)]
        if difference in named or _is_lead(difference):
            ways.append(whole_facts(difference, wanted, old))
        for changed in ways:
            if changed and not _still(check, finding, _WithOneBack(new, changed), selection):
                return difference
    if lost := _patch_of(finding, check.code, concerned):
        return lost
    # Rules about nodes read all of them, and rules about sources read no single entry: only named differences
    # can be tested.
    of_nodes = Fleet in wanted
    likely = [difference for difference in named if of_nodes or _is_lead(difference)]
    return likely[0] if len(likely) == 1 else None


def missing_packages(finding: Finding, found: Iterable[Difference]) -> list[Difference]:
    """Return the packages that a finding names and that existed on the old side only."""
    if finding.subject is None or finding.subject.kind != "package":
        return []
    names = finding.subject.name.split(",")
    return [entry for entry in found if entry.kind == "package" and not entry.new and entry.subject in names]


def _release_of(finding: Finding, found: Iterable[Difference]) -> Difference | None:
    """Return verl's release if the finding is about a setting that only one of the two releases has."""
    about = finding.subject
    entries = list(found)
    if about is None or about.kind != "setting" or not any(about.name in entry.folded for entry in entries):
        return None
    return next((entry for entry in entries if (entry.kind, entry.subject) == ("package", "verl")), None)


def _patch_of(finding: Finding, code: str, found: Iterable[Difference]) -> Difference | None:
    """Return the patch that stood where a finding is: of several in one file the one that names the rule."""
    places = [place.path for place in (finding.location, *finding.also) if place]
    here = [
        difference
        for difference in found
        if difference.kind == "patch"
        and difference.old
        and any(place.endswith(f"/{difference.path}") for place in places)
    ]
    naming = [difference for difference in here if code in difference.subject]
    return naming[0] if naming else here[0] if len(here) == 1 else None


def _read(difference: Difference, wanted: Iterable[type]) -> bool:
    return any(fact.__name__ in difference.facts for fact in wanted)


def _is_lead(difference: Difference) -> bool:
    return difference.kind == "package" and difference.subject in LEAD


def _names(finding: Finding, subject: str) -> bool:
    """Return whether a finding is about the difference.

    A plugin's finding without a subject is matched by its text.
    """
    about, evidence = finding.subject, finding.evidence
    parts = (about.name, about.detail) if about else (finding.message, evidence.found, evidence.wanted)
    text = " ".join((*parts, str(finding.location or "")))
    # Packages are written with hyphens or underscores.
    pattern = re.escape(subject).replace(r"\-", "[-_.]")
    return re.search(rf"(?<![\w-]){pattern}(?![\w-])", text, re.IGNORECASE) is not None


def _still(check: Check, finding: Finding, facts: Facts, selection: Selection) -> bool:
    result = judge_one(check, facts, selection, {}, date.today())  # noqa: DTZ011 - ignores end on days of the user's
    return key_of(check.code, finding) in {key_of(check.code, finding) for finding in result.findings}

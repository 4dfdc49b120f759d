"""Which difference a finding comes from: one thing is put back as it was, and the rule is asked again.

When it falls silent, that thing is the cause: this is tried, not guessed from names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, cast

from verl_doctor.toolkit.collectors.ray.fleet import Fleet
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.put_back import put_back, whole_facts
from verl_doctor.toolkit.comparison.subjects import LEAD
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.judge import Selection, facts_of, judge_one
from verl_doctor.toolkit.facts import F, Unknown
from verl_doctor.toolkit.rule import Check, Finding

_TRIED = 40
"""Differences that are put back for one finding, those that it names first."""

_VARYING = re.compile(r"(?:~?/)[^\s:,;'\")]*|\d[\w.]*")


Key = tuple[str, ...]
"""What two findings of one fault have in common (`key_of`)."""

# In the name of a subject: a path, or a word that begins with a digit. "eth0" and "vllm.v1" are names.
_VARYING_NAME = re.compile(r"(?<![\w./~-])(?:~?/[^\s:,;'\")]*|\d[\w.+-]*)")
# Whose names are another one on each machine.
_OF_ONE_MACHINE = frozenset({"address", "device", "node", "port", "process"})


def key_of(code: str, finding: Finding) -> Key:
    """What two findings of one fault have in common on two machines: the rule and the subject, without paths and numbers.

    Of a finding without a subject, which a plugin may have, these are its words instead.
    """
    subject = finding.subject
    if subject is None:
        return code, _VARYING.sub("#", finding.message)
    name = "#" if subject.kind in _OF_ONE_MACHINE else _VARYING_NAME.sub("#", subject.name)
    return code, subject.kind, name, _VARYING_NAME.sub("#", subject.detail)


class _WithOneBack:
    """The new facts with one thing as it was before."""

    def __init__(self, facts: Facts, changed: Mapping[type, Any]) -> None:
        self._facts = facts
        self._changed = changed

    def get(self, fact: type[F]) -> F | Unknown:
        """The fact, changed or not."""
        return cast("F | Unknown", self._changed.get(fact) or self._facts.get(fact))


def cause_of(
    finding: Finding,
    check: Check,
    found: Sequence[Difference],
    old: Facts,
    new: Facts,
    selection: Selection,
) -> Difference | None:
    """The difference without which this rule does not find that, None when no single one is known."""
    wanted = list(facts_of([check]))
    concerned = [difference for difference in found if difference.kind != "fact"]
    named = [difference for difference in concerned if _names(finding, difference.subject)]
    others = [difference for difference in concerned if difference not in named and _read(difference, wanted)]
    for difference in [*named, *others][:_TRIED]:
        ways = [put_back(difference, wanted, old, new)]
        if difference in named or _is_lead(difference):
            ways.append(whole_facts(difference, wanted, old))
        for changed in ways:
            if changed and not _still(check, finding, _WithOneBack(new, changed), selection):
                return difference
    if lost := _patch_of(finding, check.code, concerned):
        return lost
    # What compares nodes reads all of them, and what reads sources reads no entry: only what is named can be told.
    of_nodes = Fleet in wanted
    likely = [difference for difference in named if of_nodes or _is_lead(difference)]
    return likely[0] if len(likely) == 1 else None


def _patch_of(finding: Finding, code: str, found: Iterable[Difference]) -> Difference | None:
    """The patch that stood where a finding is: of several in one file the one that names the rule."""
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
    """Whether a finding is about what differs. One without a subject, of a plugin, is about what its words name."""
    about, evidence = finding.subject, finding.evidence
    parts = (about.name, about.detail) if about else (finding.message, evidence.found, evidence.wanted)
    text = " ".join((*parts, str(finding.location or "")))
    # Packages are spelled with hyphens or underscores.
    pattern = re.escape(subject).replace(r"\-", "[-_.]")
    return re.search(rf"(?<![\w-]){pattern}(?![\w-])", text, re.IGNORECASE) is not None


def _still(check: Check, finding: Finding, facts: Facts, selection: Selection) -> bool:
    result = judge_one(check, facts, selection, {}, date.today())  # noqa: DTZ011 - ignores end on days of the user's
    return key_of(check.code, finding) in {key_of(check.code, finding) for finding in result.findings}

"""Rules, facts and reports with every sentence reworded: decisions of code must not change."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Check, Evidence, Finding, Unjudged

SENTENCES = frozenset({"found_in", "reason"})
"""The fields of facts that hold sentences for people."""

_WORDS = "other words of an author who meant the same and wrote it down in quite another way "


def other(text: str) -> str:
    """Other words that are as long, the same for the same text, and nearly always different for different texts."""
    start = sum(map(ord, text)) % len(_WORDS)
    words = (_WORDS[start:] + _WORDS * (len(text) // len(_WORDS) + 1))[: len(text)]
    return re.sub(r"^\s|\s$", "x", words)


def finding(one: Finding) -> Finding:
    """A finding in other words."""
    evidence = one.evidence
    return replace(
        one,
        message=other(one.message),
        remedy=other(one.remedy),
        evidence=Evidence(other(evidence.found), other(evidence.wanted), other(evidence.read_from)),
    )


def check(one: Check) -> Check:
    """A rule with the same findings in other words."""
    applies = one.applies
    unjudged = one.unjudged

    @functools.wraps(one.judge)
    def judge(**facts: Any) -> Iterator[Finding]:
        yield from map(finding, one.judge(**facts))

    def relevance(**facts: Any) -> str | Unknown | None:
        answer = applies(**facts) if applies is not None else None
        return other(answer) if isinstance(answer, str) else answer

    def not_told(**facts: Any) -> tuple[Unjudged, ...]:
        entries = unjudged(**facts) if unjudged is not None else ()
        return tuple(replace(entry, what=other(entry.what), why=other(entry.why)) for entry in entries)

    return replace(
        one,
        judge=judge,
        applies=applies and relevance,
        unjudged=unjudged and not_told,
    )


def fact(value: Any) -> Any:
    """A fact, or the reason for its absence, with reworded sentences."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: other(inner) if field.name in SENTENCES and isinstance(inner, str) else fact(inner)
            for field in fields(value)
            if field.init
            for inner in (getattr(value, field.name),)
        }
        return replace(value, **changed)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(fact, value))
    if isinstance(value, Mapping):
        return {key: fact(inner) for key, inner in value.items()}
    return value

"""What a plugin yields is read within its limits."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from verl_doctor.toolkit.change import Refusal, fix
from verl_doctor.toolkit.engine import plugin_limits
from verl_doctor.toolkit.engine.plugin_limits import PluginLimitError, Together, limited
from verl_doctor.toolkit.rule import (
    Check,
    Correction,
    Evidence,
    Finding,
    Location,
    Subject,
    Unjudged,
    check,
)


def test_plan_that_is_a_generator_is_read_and_counted() -> None:
    @fix("test-ends", repairs="PY101", safety="safe")
    def ends(finding: Finding) -> object:
        """Yields three."""
        return iter(range(3))

    @fix("test-endless", repairs="PY101", safety="safe")
    def endless(finding: Finding) -> object:
        """Yields without end."""
        return itertools.count()

    @fix("test-refuses", repairs="PY101", safety="safe")
    def refuses(finding: Finding) -> Refusal:
        """Refuses."""
        return Refusal("no")

    assert limited(ends).plan(None) == (0, 1, 2)
    assert limited(refuses).plan(None) == Refusal("no")
    with pytest.raises(PluginLimitError, match="more than 10,000 items"):
        limited(endless).plan(None)


def rule(*findings: Any) -> Check:
    @check("HOST951", severity="error", examples=[])
    def yields() -> Any:
        """Yields these."""
        return iter(findings)

    return yields


def found(**fields: Any) -> Finding:
    return Finding(**{"message": "a fault", "evidence": Evidence("it"), **fields})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"also": itertools.repeat(Location("a", 1))}, "more than 100,000 items"),
        ({"also": [Location("a" * 1000, 1)] * 2000}, "more than 1,000,000 characters"),
        ({"stops": ["a" * 1000] * 2000}, "more than 1,000,000 characters"),
        ({"evidence": Evidence({"a": "b"})}, "Evidence.found does not accept this dict"),  # type: ignore[arg-type]
        ({"evidence": None}, "Finding.evidence does not accept this NoneType"),
        ({"location": "train.sh"}, "Finding.location does not accept this str"),
        ({"location": Location("a", "1")}, "Location.line does not accept this str"),  # type: ignore[arg-type]
        ({"subject": object()}, "Finding.subject does not accept this object"),
        ({"phase": "never"}, "Finding.phase is 'never', which is none of shell, import, "),
        ({"subject": Subject("key", "a")}, "Subject.kind is 'key', which is none of actor, "),  # type: ignore[arg-type]
        ({"severity": "deadly"}, "Finding.severity"),
        ({"node": 7}, "Finding.node does not accept this int"),
    ],
)
def test_finding_that_cannot_be_shown_breaks_its_rule_alone(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises((PluginLimitError, TypeError), match=reason):
        limited(rule(found(**fields))).judge()


def test_corrections_without_end_break_the_rule() -> None:
    correction = Correction("HOST951", ())
    for _ in range(200):
        correction = Correction("HOST951", (), others=(correction,))
    with pytest.raises(PluginLimitError, match="50 deep"):
        limited(rule(found(correction=correction))).judge()


def test_subclasses_become_what_is_declared() -> None:
    class Number(int):
        def __str__(self) -> str:
            raise ValueError

    class Faulty(Finding):
        pass

    finding = Faulty("a fault", Evidence("it"), Location("a", Number(3)), subject=Subject("file", "a"))
    (plain,) = limited(rule(finding)).judge()
    assert type(plain) is Finding
    assert type(plain.location.line) is int
    assert plain == Finding("a fault", Evidence("it"), Location("a", 3), subject=Subject("file", "a"))


def test_what_was_not_judged_is_limited_too() -> None:
    @check(
        "HOST951",
        severity="error",
        examples=[],
        unjudged=lambda: [Unjudged("x" * 2_000_000, "why", Location("a"))],
    )
    def quiet() -> Any:
        """Yields nothing."""
        return ()

    quiet_within = limited(quiet)
    assert isinstance(quiet_within, Check)
    assert quiet_within.unjudged is not None
    with pytest.raises(PluginLimitError, match="characters"):
        quiet_within.unjudged()


def test_all_plugins_together_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    large = rule(found(message="x" * 900_000))
    together = Together()
    for _ in range(5):
        limited(large, together).judge()
    with pytest.raises(PluginLimitError, match="of all plugins"):
        limited(large, together).judge()

    @check("HOST951", severity="error", examples=[])
    def slow() -> Any:
        """Takes its time."""
        time.sleep(0.2)
        return ()

    monkeypatch.setattr(plugin_limits, "_QUICK", 0.1)
    together = Together(seconds=0.3)
    assert limited(slow, together).judge() == ()
    with pytest.raises(PluginLimitError, match="did not end"):
        limited(slow, together).judge()
    with pytest.raises(PluginLimitError, match="used up"):
        limited(slow, together).judge()

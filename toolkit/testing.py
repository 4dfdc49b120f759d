"""For rule authors, ours and plugins': a rule's examples are its tests.

from verl_doctor.toolkit.testing import check_examples

def test_examples():
    check_examples(my_rule)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.result import CheckResult
from verl_doctor.toolkit.rule import Check, Example

HEADINGS = ("## Why it matters", "## How to fix")
_EVERY_COST = frozenset({"instant", "live", "gpu", "cluster", "slow"})


def configuration_of(defaults: Mapping[str, Any], *overrides: str) -> Configuration:
    """The configuration of a job: verl's `defaults` and the overrides of run.sh, as in "trainer.nnodes=2"."""
    words = [Word(text=text, path="run.sh", line=line) for line, text in enumerate(overrides, 2)]
    job = Configuration(
        program="main_ppo", folder="verl/trainer/config", name="ppo_trainer", before=defaults, verl="0.9.1"
    )
    return with_overrides(job, words)


def run_check(check: Check, *facts: Any) -> CheckResult:
    """Judge exactly these facts by one rule.

    An unavailable fact is given as a pair: its type and the `Unknown`.
    """
    given: Mapping[type, Any] = dict(
        fact if isinstance(fact, tuple) else (type(fact), fact) for fact in facts
    )
    selection = Selection(costs=_EVERY_COST)
    (result,) = judge([check], Collection([], given), selection, today=date(2026, 1, 1))
    return result


def check_example(check: Check, example: Example) -> None:
    """Raise AssertionError, naming the example, when the rule does not report what the example expects."""
    result = run_check(check, *example.facts)
    label = f"{check.code}, {example.name!r}"
    if result.status in {"error", "skipped"}:
        raise AssertionError(f"{label}: {result.status}: {result.reason}\n{result.trace}")
    messages = [finding.message for finding in result.findings]
    if example.expect is None:
        if messages:
            raise AssertionError(f"{label}: expected no finding, but it reports {messages}")
    elif len(messages) != 1 or example.expect not in messages[0]:
        raise AssertionError(
            f"{label}: expected one finding with {example.expect!r}, but it reports {messages}"
        )


def check_examples(check: Check) -> None:
    """Raise AssertionError unless the rule is documented, and its examples are there and hold.

    It must have an example with and one without a finding, and all must hold.
    """
    for heading in HEADINGS:
        if heading not in check.documentation:
            raise AssertionError(f"{check.code}: its docstring lacks the heading '{heading}'")
    if {example.expect is None for example in check.examples} != {True, False}:
        raise AssertionError(f"{check.code}: it needs an example with a finding and one without")
    for example in check.examples:
        check_example(check, example)

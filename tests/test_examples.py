"""Every example of every rule is a test, and every rule is documented."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit import registry
from verl_doctor.toolkit.rule import Check, Example
from verl_doctor.toolkit.testing import check_example, check_examples

KNOWN = registry.load()
EXAMPLES = [
    pytest.param(check, example, id=f"{check.code}-{example.name.replace(' ', '_')}")
    for check in KNOWN.checks
    for example in check.examples
]


@pytest.mark.parametrize(("check", "example"), EXAMPLES)
def test_example(check: Check, example: Example) -> None:
    check_example(check, example)


@pytest.mark.parametrize("check", [pytest.param(check, id=check.code) for check in KNOWN.checks])
def test_rule_is_documented_and_has_both_kinds_of_examples(check: Check) -> None:
    check_examples(check)


def test_every_fix_repairs_a_rule_that_exists() -> None:
    codes = {check.code for check in KNOWN.checks}
    assert [fix.id for fix in KNOWN.fixes if fix.repairs not in codes] == []


def test_every_requirement_is_a_rule_that_exists() -> None:
    codes = {check.code for check in KNOWN.checks}
    assert {need for check in KNOWN.checks for need in check.requires} <= codes

"""Every example of every rule is a test, and every rule is documented."""

from __future__ import annotations

import re

import pytest

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.testing import check_examples, run_check

KNOWN = registry.load()


@pytest.mark.parametrize("check", [pytest.param(check, id=check.code) for check in KNOWN.checks])
def test_rule_is_documented_and_its_examples_pass(check: Check) -> None:
    check_examples(check)


def test_every_fix_repairs_an_existing_rule() -> None:
    codes = {check.code for check in KNOWN.checks}
    assert [fix.id for fix in KNOWN.fixes if not codes.issuperset(fix.repairs)] == []


def test_fixes_named_by_examples_exist_and_repair_their_rule() -> None:
    repairs = {fix.id: fix.repairs for fix in KNOWN.fixes}
    wrong = [
        (check.code, finding.fix)
        for check in KNOWN.checks
        for example in check.examples
        for finding in run_check(check, *example.facts).findings
        if finding.fix is not None and check.code not in repairs.get(finding.fix, ())
    ]
    assert wrong == []


def test_every_requirement_is_an_existing_rule() -> None:
    codes = {check.code for check in KNOWN.checks}
    assert {need for check in KNOWN.checks for need in check.requires} <= codes


def test_remedy_starts_in_lower_case_and_has_no_full_stop() -> None:
    remedies = [
        (check.code, finding.remedy)
        for check in KNOWN.checks
        for example in check.examples
        if example.expect is not None
        for finding in run_check(check, *example.facts).findings
    ]
    assert [
        found for found in remedies if re.match(r"[A-Z][a-z]+\b", found[1]) or found[1].endswith(".")
    ] == []

"""What counts as made worse: a rule that had judged and cannot any more, not one that now applies for the first time."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace as Some

import pytest

from verl_doctor.toolkit.repair.repair import _Comparison

SESSION = Some(registry=Some(check=lambda code: code))
BLAME = Some(may_concern=lambda *_: True)


def report(status: str) -> Some:
    return Some(results=[Some(code="ATT901", status=status, reason="no device")])


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ("pass", "skipped", True),
        ("warn", "error", True),
        ("not_applicable", "error", True),
        ("not_applicable", "skipped", False),
        ("skipped", "error", False),
        ("pass", "fail", False),
    ],
)
def test_a_rule_that_can_judge_no_longer(before: str, after: str, worse: bool) -> None:
    look = _Comparison(SESSION, BLAME, None, None)  # type: ignore[arg-type]
    found = look.worse(report(before), report(after), Counter())  # type: ignore[arg-type]
    assert bool(found) is worse

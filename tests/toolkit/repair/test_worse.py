"""A rule that can no longer judge counts as worse; one that applies for the first time does not."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace as Some

import pytest

from verl_doctor.toolkit.repair.improvement import Comparison

SESSION = Some(registry=Some(check=lambda code: code))
BLAME = Some(may_concern=lambda *_: True)


def report(status: str, follows_from: str | None = None) -> Some:
    return Some(results=[Some(code="ATT901", status=status, reason="no device", follows_from=follows_from)])


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
def test_rule_that_can_no_longer_judge_counts_as_worse(before: str, after: str, worse: bool) -> None:
    look = Comparison(SESSION, BLAME, None, None)  # type: ignore[arg-type]
    found = look.worse(report(before), report(after), Counter())  # type: ignore[arg-type]
    assert bool(found) is worse


def test_rule_masked_by_another_is_attributed_to_that_rule() -> None:
    """Fewer GPUs uncover a tensor parallelism that another repair of the same run corrects; further rules follow from it."""
    look = Comparison(SESSION, BLAME, None, None)  # type: ignore[arg-type]
    assert not look.worse(report("pass"), report("skipped", "ATT902"), Counter())  # type: ignore[arg-type]
    assert look.worse(report("pass"), report("skipped", "ATT902"), Counter({"ATT901": 1}))  # type: ignore[arg-type]

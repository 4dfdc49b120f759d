"""What a plan shows before the packages are resolved: nothing, unless an installer takes longer than a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from verl_doctor.toolkit.collectors.packages.installer_limit import InstallerLimit
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.commands.fix import early
from verl_doctor.toolkit.facts import FactReference, Need
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Evidence, Finding

TARGET = {"arguments": []}


@pytest.mark.parametrize(("takes", "shown"), [(2.0, False), (60.0, True)])
def test_verdict_comes_early_only_if_the_plan_takes_long(
    takes: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Finding("it is wrong", Evidence("x"), severity="error", fix="install")
    result = CheckResult("PKG101", "t", "fail", findings=(fault,))
    fix = SimpleNamespace(needs=(Need("resolution", FactReference.of(Resolution), tolerant=False),))
    monkeypatch.setattr(early, "with_best_fixes", lambda _session, _collection, report: report)
    monkeypatch.setattr(early, "fixable", lambda _session, _report: [(result, fault, fix)])
    printed: list[str] = []
    progress = SimpleNamespace(done=printed.append, show=lambda _text: None)
    session = SimpleNamespace(offline=False, installer_limit=InstallerLimit(120.0))
    collection = SimpleNamespace(is_soon=lambda _fact, seconds: takes <= seconds)
    early.show_before_packages(
        cast("Any", session), cast("Any", collection), Report(TARGET, (result,)), cast("Any", progress)
    )
    assert any("WILL FAIL" in line for line in printed) is shown
    assert any("the plan follows" in line for line in printed) is shown

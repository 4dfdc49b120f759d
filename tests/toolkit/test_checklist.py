"""The state of a migration step follows from what its rules said."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest

from verl_doctor.toolkit import checklist, registry, toml
from verl_doctor.toolkit.checklist import Step, steps
from verl_doctor.toolkit.config import Config
from verl_doctor.toolkit.fact_markers import MarkedLine, Markers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Evidence, Finding

NO_MARKERS = Unknown("no verl was found")


def finding(severity: str) -> Finding:
    return Finding("it is cold", Evidence("cold", "warm"), severity=severity)  # type: ignore[arg-type]


def caches(*results: CheckResult, config: Config | None = None) -> Step:
    """The step that PY103 judges."""
    report = Report({}, results)
    return next(s for s in steps(report, config or Config(), NO_MARKERS) if "caches" in s.title)


def said(status: str, *findings: Finding, reason: str = "") -> CheckResult:
    return CheckResult("PY103", "caches", status, reason, findings=findings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "state", "evidence"),
    [
        (said("pass"), "done", "PY103 passed"),
        (said("pass", finding("info")), "done", "PY103 passed"),
        (said("warn", finding("warning")), "open", "PY103 it is cold"),
        (said("warn", finding("warning"), finding("warning")), "open", "(and 1 more finding)"),
        (said("fail", finding("error")), "failed", "PY103 it is cold"),
        (said("skipped", reason="no answer"), "unknown", "PY103 skipped: no answer"),
        (said("error", reason="it broke"), "unknown", "it broke"),
    ],
)
def test_a_step_is_as_its_rules_say(result: CheckResult, state: str, evidence: str) -> None:
    step = caches(result)
    assert step.state == state
    assert evidence in step.evidence
    assert bool(step.do) == (state != "done")


def test_a_step_without_any_of_its_rules_is_unknown() -> None:
    assert caches().state == "unknown"


def test_configured_paths_that_exist_are_a_step_done(tmp_path: Path) -> None:
    def state(sites: dict[str, str]) -> str:
        found = steps(Report({}, ()), Config(sites=sites), NO_MARKERS)
        return next(step.state for step in found if "paths" in step.title)

    assert state({}) == "open"
    assert state({"data": str(tmp_path)}) == "done"
    assert state({"data": str(tmp_path), "model": str(tmp_path / "none")}) == "failed"


def test_marked_lines_are_counted() -> None:
    lines = (MarkedLine("/verl/a.py", 3, "verl-doctor: VLLM101"),)
    found = steps(Report({}, ()), Config(), Markers("/verl", lines))
    assert any("1 marked line in the verl tree" in step.evidence for step in found)


@pytest.mark.parametrize(
    ("states", "code"),
    [(("done", "open"), 0), (("done", "unknown"), 3), (("unknown", "failed"), 1)],
)
def test_the_exit_code_is_that_of_the_worst_step(states: tuple[str, ...], code: int) -> None:
    assert checklist.exit_code(tuple(Step("x", state, "") for state in states)) == code  # type: ignore[arg-type]


def test_every_rule_that_a_step_names_is_there() -> None:
    text = (importlib.resources.files("verl_doctor.checks") / "data/migration_steps.toml").read_text("utf-8")
    named = {code for step in toml.loads(text)["step"] for code in step.get("judged_by", ())}
    assert named <= {check.code for check in registry.load().checks}


def test_a_terminal_gets_no_wider_lines() -> None:
    step = Step("a title", "failed", "a sentence that goes on and on " * 8, do="type this " * 20)
    lines = list(checklist.as_text((step,), 80))
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("       do: ") for line in lines) == 1
    assert len(list(checklist.as_text((step,)))) == 5

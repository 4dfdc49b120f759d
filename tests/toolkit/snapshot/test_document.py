"""A snapshot's summary states that the job fails on the machine that was taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Evidence, Finding, Severity
from verl_doctor.toolkit.snapshot.document import document, lines
from verl_doctor.toolkit.snapshot.snapshot import Snapshot

TARGET = {"arguments": ["--python", "/env/bin/python", "run.sh"]}


def test_command_that_compares_later_is_about_the_same_target() -> None:
    found = document(Snapshot({}, machine="a"), Report(TARGET, ()), Path("a b.json"), 9, ("--cluster",))
    command = "verl-doctor compare 'a b.json' --cluster --python /env/bin/python run.sh"
    assert found["compare"] == command
    assert list(lines(found))[-1] == f"    {command}"


@pytest.mark.parametrize(("severity", "fails_by"), [("error", ["CFG101"]), ("warning", [])])
def test_job_that_fails_where_it_was_taken_is_named(severity: Severity, fails_by: list[str]) -> None:
    finding = Finding("no setting data.x", Evidence("data.x"), severity=severity)
    report = Report(TARGET, (CheckResult("CFG101", "t", "fail", findings=(finding,)),))
    found = document(Snapshot({}, machine="a"), report, Path("a b.json"), 9)
    validate(dict(found), schema_text("snapshot"))
    assert found["fails_by"] == fails_by
    line = "  this job will fail here too (CFG101): verl-doctor check --facts 'a b.json' shows why"
    assert (line in lines(found)) == bool(fails_by)

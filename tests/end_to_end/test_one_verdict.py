"""Findings, states of the job's paths and exit code never contradict each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import EVERY_JOB, PHASES, Check, Example
from verl_doctor.toolkit.testing import run_check
from verl_doctor.toolkit.verdict import EXIT_CODES, STATES

MACHINES = [
    path
    for path in sorted((Path(__file__).parents[1] / "machines").glob("*.json"))
    if '"facts"' in path.read_text("utf-8")
]
SPEAKING = [
    (check, example)
    for check in registry.load().checks
    for example in check.examples
    if example.expect is not None
]
# Its findings depend on the cluster, or no part of the job is known to fail first.
_NO_PHASE = frozenset({"SMOKE111", "SMOKE112"})


@pytest.mark.parametrize("family", sorted({check.family for check, _ in SPEAKING}))
def test_error_implies_a_failing_path(family: str) -> None:
    for check, example in SPEAKING:
        if check.family == family:
            has_one_verdict(check, example)


def has_one_verdict(check: Check, example: Example) -> None:
    report = Report({}, (run_check(check, *example.facts),))
    errors = [finding for _, finding in report.findings() if finding.severity == "error"]
    struck = {path for finding in errors for path in finding.stops} - {EVERY_JOB}
    where = f"{check.code}, {example.name}"
    for path in report.paths:
        hit = any(not error.stops or EVERY_JOB in error.stops or path.path in error.stops for error in errors)
        assert (path.state == "will_fail") == hit, where
        assert not hit or check.code in path.codes, where
    assert struck <= {path.path for path in report.paths}, where
    assert (report.verdict == "failures") == bool(errors), where
    assert all(finding.phase for finding in errors) or check.code in _NO_PHASE, (
        f"{where}: it does not say when it strikes"
    )


@pytest.mark.slow
@pytest.mark.parametrize("facts", MACHINES, ids=lambda path: path.stem)
def test_recorded_machine_has_a_single_verdict(facts: Path, here: Doctor, tmp_path: Path) -> None:
    done = here("check", "--facts", facts, "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    errors = [
        finding
        for result in report["results"]
        for finding in result["findings"]
        if finding["severity"] == "error"
    ]
    states = {path["state"] for path in report["paths"]}
    assert done.returncode == EXIT_CODES[report["verdict"]]
    assert STATES[report["verdict"]] in states
    assert ("will_fail" in states) == bool(errors)
    assert all(path["codes"] for path in report["paths"] if path["state"] == "will_fail")

    text = here("check", "--facts", facts, cwd=tmp_path).stdout.splitlines()
    word = STATES[report["verdict"]].replace("_", " ").upper()
    assert text[0].startswith(f"{word}  ")
    assert text[-1].startswith(f"{word}: ")


@pytest.mark.slow
def test_findings_are_ordered_by_phase() -> None:
    results = tuple(run_check(check, *example.facts) for check, example in SPEAKING[::-1])
    phases = [finding.phase for _, finding in Report({}, results).findings()]
    known = [PHASES.index(phase) for phase in phases if phase]
    assert known == sorted(known)
    assert None not in phases[: len(known)]

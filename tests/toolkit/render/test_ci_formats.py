"""The views for a CI: SARIF for code scanning, workflow commands for annotations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import sarif
from support.running import Doctor
from support.schemas import validate

from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.engine.checkout import checkout, path_in
from verl_doctor.toolkit.render import github
from verl_doctor.toolkit.render import sarif as render_sarif
from verl_doctor.toolkit.render.sarif_fixes import artifact_changes
from verl_doctor.toolkit.result import CheckResult, JobReport, NodeGroup, Nodes, Repair, Report
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity, Subject

SARIF = json.dumps(sarif.LOG)
TARGET = {"python": "/env/bin/python", "verl": None, "vllm": None}
COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "run.sh").write_text("one\ntwo\n", "utf-8")
    return tmp_path


def finding(
    message: str = "it is wrong",
    path: str = "",
    line: int | None = None,
    severity: Severity = "error",
    **more: Any,
) -> Finding:
    place = Location(path, line) if path else None
    return Finding(message, Evidence("this", "that", "/there"), place, "mend it", severity, **more)


def report(*findings: Finding, code: str = "CFG101", **more: Any) -> Report:
    results = (
        CheckResult(code, "A rule", "fail", findings=findings),
        CheckResult("PY102", "A rule that was skipped", "skipped", "nobody knows"),
        CheckResult("PY103", "A rule that broke", "error", "KeyError"),
        CheckResult("PY104", "A rule left out", "skipped", "not asked", deliberate=True),
        CheckResult("PY105", "A rule that passed", "pass"),
    )
    return Report(TARGET, results, 0.5, {"the-fix": "safe"}, **more)


def log(to_render: Report, cwd: Path, code: int = 1) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_sarif.render(to_render, (config_key_unknown,), cwd, code))
    validate(document, SARIF)
    (run,) = document["runs"]
    return run


def test_finding_in_the_checkout_has_a_relative_path(repo: Path) -> None:
    to_render = finding(path=str(repo / "jobs" / "run.sh"), line=2, also=(Location("jobs/run.sh", 1),))
    run = log(report(to_render), repo / "jobs")
    (result,) = run["results"]
    (place,) = result["locations"]
    assert place == {
        "physicalLocation": {
            "artifactLocation": {"uri": "jobs/run.sh", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 2},
        }
    }
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{repo.as_uri()}/"
    assert result["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert result["message"]["text"].splitlines() == [
        "it is wrong",
        "found: this",
        "expected: that",
        "read from: /there",
        "do: mend it",
    ]


def test_finding_about_the_environment_gets_a_placeholder_location(repo: Path) -> None:
    """GitHub takes no result without a physical location."""
    results = log(report(finding(), finding(path="/env/ä b.py", line=3, node="node7")), repo)["results"]
    places = [result["locations"][0] for result in results]
    uris = [place["physicalLocation"]["artifactLocation"]["uri"] for place in places]
    assert uris == ["file:///env/bin/python", "file:///env/%C3%A4%20b.py"]
    assert [place["logicalLocations"][0]["fullyQualifiedName"] for place in places] == [
        "this machine:/env/bin/python",
        "node7:/env/ä b.py:3",
    ]


def test_severities_rules_and_unjudged_rules_are_included(repo: Path) -> None:
    severities: tuple[Severity, ...] = ("error", "warning", "info")
    run = log(report(*(finding(severity=severity) for severity in severities)), repo, code=3)
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert sorted(rules) == ["CFG101"], "of the rules that were given"
    assert (
        "## Why it matters" in rules["CFG101"]["help"]["markdown"]
        or "Why it matters" in rules["CFG101"]["help"]["text"]
    )
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 3)
    shown = [
        (note["level"], note["associatedRule"]["id"]) for note in invocation["toolExecutionNotifications"]
    ]
    assert shown == [("note", "PY102"), ("error", "PY103")]


def test_silenced_errors_and_files_that_could_not_be_checked_are_reported(repo: Path) -> None:
    hidden = CheckResult("PY104", "x", "skipped", "meant, OPS-12", deliberate=True, silenced_errors=2)
    alone = Report(TARGET | {"arguments": []}, (hidden,), unexamined="no verl was found")
    jobs = (JobReport(str(repo / "jobs" / "run.sh"), alone),)
    in_some = CheckResult("PY105", "x", "pass", silenced_errors=1)
    report = replace(alone, results=(hidden, in_some), jobs=jobs)
    notes = log(report, repo)["invocations"][0]["toolExecutionNotifications"]
    assert notes == [
        {
            "level": "note",
            "message": {"text": "2 errors of PY104 silenced: meant, OPS-12"},
            "associatedRule": {"id": "PY104"},
        },
        {
            "level": "note",
            "message": {"text": "1 error of PY105 silenced"},
            "associatedRule": {"id": "PY105"},
        },
        {
            "level": "error",
            "message": {"text": "jobs/run.sh: NOT CHECKED: no verl was found; 2 errors silenced (PY104)"},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": "jobs/run.sh", "uriBaseId": "%SRCROOT%"}}}
            ],
        },
    ]


def test_nodes_that_did_not_respond_are_reported(repo: Path) -> None:
    nodes = Nodes(2, 2, missing=(NodeGroup("no route", 1, "node9"),))
    to_render = Report(TARGET, (CheckResult("PY105", "x", "pass"),), nodes=nodes)
    (note,) = log(to_render, repo)["invocations"][0]["toolExecutionNotifications"]
    assert "node9" in note["message"]["text"]
    assert any("node9" in line for line in github.render(to_render, repo))


def test_fingerprint_survives_moved_lines_and_separates_equal_findings(repo: Path) -> None:
    def prints(*findings: Finding) -> list[str]:
        results = log(report(*findings), repo)["results"]
        return [result["partialFingerprints"]["verlDoctorFinding/v2"] for result in results]

    here = str(repo / "jobs" / "run.sh")
    first, second = prints(finding(path=here, line=1), finding(path=here, line=2))
    assert first != second
    assert prints(finding(path=here, line=40)) == [first]
    assert prints(finding(path="/elsewhere/x.py", line=1)) != [first]


def test_fingerprint_depends_on_the_subject_and_not_the_wording(repo: Path) -> None:
    def prints(*findings: Finding) -> list[str]:
        results = log(report(*findings), repo)["results"]
        return [result["partialFingerprints"]["verlDoctorFinding/v2"] for result in results]

    here = finding(subject=Subject("variable", "HF_HOME"))
    other = replace(here, message="in other words", evidence=Evidence("something else"))
    assert prints(here) == prints(other)
    assert prints(here) != prints(replace(here, subject=Subject("variable", "NCCL_ALGO")))
    inside = [
        replace(here, subject=Subject("file", str(top / "jobs" / "run.sh")))
        for top in (repo, Path("/runner"))
    ]
    relative = replace(here, subject=Subject("file", "jobs/run.sh"))
    assert [prints(finding) == prints(relative) for finding in inside] == [True, False]


def test_plan_is_a_fix_at_the_findings_in_its_files(repo: Path) -> None:
    path = repo / "jobs" / "run.sh"
    diff = "".join(unified(b"one\ntwo\n", b"one\n2\nthree\n", (f"a{path}", f"b{path}")))
    plan = Repair("the-fix", "CFG101", "Mend it", "safe", "planned", diff=diff)
    findings = (
        finding(path=str(path), line=2, fix="the-fix"),
        finding(path="/x.py", fix="the-fix"),
        finding(),
    )
    results = log(report(*findings, repairs=(plan,)), repo)["results"]
    assert [len(result.get("fixes", ())) for result in results] == [1, 0, 0]
    (change,) = results[0]["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "jobs/run.sh", "uriBaseId": "%SRCROOT%"}
    assert results[0]["properties"]["fix"] == {"id": "the-fix", "safety": "safe"}


def carried_out(text: str, replacements: list[dict[str, Any]]) -> str:
    """Result of applying replacements of whole lines, as by an editor."""
    lines = text.splitlines(keepends=True)
    for replacement in reversed(replacements):
        region = replacement["deletedRegion"]
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [replacement["insertedContent"]["text"]]
    return "".join(lines)


LINES = st.lists(st.sampled_from(["a", "b", "-- c", "++ d", "@@ -1 +1 @@", ""]), min_size=1, max_size=12)


@settings(max_examples=40)
@given(LINES, LINES)
def test_applying_a_fix_gives_the_planned_file(before: list[str], after: list[str]) -> None:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    rows = unified(old.encode(), new.encode(), ("a/x", "b/x"))
    changes = artifact_changes("# a word\n" + "".join(rows), lambda path: {"uri": path})
    if old == new:
        assert changes == []
    else:
        (change,) = changes
        assert carried_out(old, change["replacements"]) == new


def test_several_files_and_commands_in_one_plan() -> None:
    rows = [
        *unified(b"1\n", b"2\n", ("a/x", "b/x")),
        "$ pip install this\n# because\n",
        *unified(b"", b"new\n", ("/dev/null", "b/y")),
    ]
    changes = artifact_changes("".join(rows), lambda path: {"uri": path})
    shown = [
        (c["artifactLocation"]["uri"], [r["insertedContent"]["text"] for r in c["replacements"]])
        for c in changes
    ]
    assert shown == [("/x", ["2\n"]), ("/y", ["new\n"])]


def commands(to_render: Report, cwd: Path) -> list[tuple[str, dict[str, str], str]]:
    """Level, properties and message of each annotation, as a runner reads them."""
    found = []
    for line in github.render(to_render, cwd):
        if match := COMMAND.fullmatch(line):
            properties = dict(part.split("=", 1) for part in match[2].split(","))
            found.append((match[1], {k: plain(v) for k, v in properties.items()}, plain(match[3])))
    return found


def plain(text: str) -> str:
    for escape, character in (("%3A", ":"), ("%2C", ","), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def test_annotations_name_files_of_the_checkout_worst_first(repo: Path) -> None:
    inside = finding("at 100%: no", str(repo / "jobs" / "run.sh"), 2, severity="warning")
    shown = commands(
        report(inside, finding(path="/env/x.py", line=3), finding(severity="info", node="node7")), repo
    )
    assert [level for level, _, _ in shown] == ["error", "warning", "notice", "error"]
    assert shown[1][1] == {"file": "jobs/run.sh", "line": "2", "title": "CFG101 A rule"}
    assert shown[1][2] == "at 100%: no\nfound: this\nexpected: that\ndo: mend it"
    assert "file" not in shown[0][1]
    assert shown[0][2].startswith("/env/x.py:3: it is wrong")
    assert shown[2][2].startswith("it is wrong (node7)")
    assert shown[3][2] == "A rule that broke: KeyError"


@settings(max_examples=40)
@given(st.text(), st.text(min_size=1))
def test_workflow_commands_cannot_be_injected(message: str, path: str) -> None:
    to_render = report(finding(f"{message}\n::error::mine\r\n::stop-commands::x", path))
    lines = list(github.render(to_render, Path("/repo")))
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert not [line for line in lines if line.startswith("::") and not COMMAND.fullmatch(line)]
    assert sum(line.startswith("::error ") for line in lines) == 2


def test_repairs_are_written_to_the_log(repo: Path) -> None:
    plan = Repair("the-fix", "CFG101", "Mend it", "safe", "planned")
    assert "planned: CFG101 Mend it" in list(github.render(report(repairs=(plan,)), repo))


def test_omissions_for_github_are_reported(repo: Path) -> None:
    few = list(github.render(report(*[finding()] * 9), repo))
    many = list(github.render(report(*[finding()] * 10), repo))
    assert few[-1] == "verl-doctor: WILL FAIL; 10 errors, 0 warnings, 0 notices"
    assert "GitHub shows 10 annotations of a level from one step" in many[-1]


def test_checkout_is_the_git_work_tree(repo: Path, tmp_path: Path) -> None:
    assert checkout(repo / "jobs") == repo
    assert path_in(repo, "jobs/../jobs/run.sh") == "jobs/run.sh"
    assert path_in(repo, "/jobs/run.sh") == path_in(repo, str(repo)) == ""
    link = tmp_path / "link"
    link.symlink_to(repo)
    assert path_in(link, str(repo / "jobs" / "run.sh")) == "jobs/run.sh"


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_real_check_writes_the_format(here: Doctor, repo: Path, form: str) -> None:
    (repo / "run.sh").write_text(
        "set -e\nexport NCCL_DEBGU=INFO\npython3 -m verl.trainer.main_ppo x\r\n", "utf-8"
    )
    done = here("check", "run.sh", "--select", "CFG107", "--format", form, cwd=repo)
    if form == "sarif":
        document = json.loads(done.stdout)
        validate(document, SARIF)
        assert document["runs"][0]["invocations"][0]["exitCode"] == done.returncode
        places = [place for r in document["runs"][0]["results"] for place in r["locations"]]
        assert any(p["physicalLocation"]["artifactLocation"]["uri"] == "run.sh" for p in places)
    else:
        assert "::error file=run.sh,title=CFG107 " in done.stdout


@pytest.mark.parametrize(("name", "uri"), [("\udcff\udcfe.sh", "%FF%FE.sh"), ("é\n.sh", "%C3%A9%0A.sh")])
def test_file_name_that_is_not_utf8_is_escaped_byte_for_byte(repo: Path, name: str, uri: str) -> None:
    to_render = report(finding(path=str(repo / name), line=2))
    (result,) = [result for result in log(to_render, repo)["results"] if result["ruleId"] == "CFG101"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


@pytest.mark.parametrize("name", ["\udcff.sh", "a\n.sh", "a\x1b[2J.sh"])
def test_file_name_unsupported_by_annotations_is_in_the_message(repo: Path, name: str) -> None:
    (_, properties, message), *_ = commands(report(finding(path=str(repo / name), line=2)), repo)
    assert "file" not in properties
    assert ".sh:2: it is wrong" in message


def test_impossible_file_name_is_still_shown(repo: Path) -> None:
    to_render = report(finding(path="/\ud800.sh"))
    (result,) = [result for result in log(to_render, repo)["results"] if result["ruleId"] == "CFG101"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///%3F.sh"

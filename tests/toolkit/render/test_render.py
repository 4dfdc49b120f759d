"""The views of a report: the same content, harmless whatever was read, and 80 columns wide where that matters."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas import validate

from verl_doctor.toolkit.change import Safety
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.console import markdown_text, view
from verl_doctor.toolkit.console.formats import FORMATS
from verl_doctor.toolkit.render import each, junit, markdown
from verl_doctor.toolkit.render import text as render_text
from verl_doctor.toolkit.render.document import document
from verl_doctor.toolkit.render.render import ReportAnswer
from verl_doctor.toolkit.render.result_words import next_steps, repair_command, stopped_by
from verl_doctor.toolkit.result import CheckResult, EnvironmentFiles, JobReport, ReasonKind, Repair, Report
from verl_doctor.toolkit.rule import PHASES, Evidence, Finding, Location, Subject
from verl_doctor.toolkit.text import harmless, wrapped

TARGET = {
    "python": "/env/bin/python",
    "chosen_by": "--python",
    "passed_over": "",
    "arguments": ["--python", "/env/bin/python"],
    "python_version": "3.11.7",
    "verl": {
        "folder": "/env/lib/verl",
        "version": "0.6.1",
        "found_in": "site-packages",
        "place": "site-packages",
    },
    "vllm": None,
    "libraries": {},
}


def report(*findings: Finding, **more: object) -> Report:
    status = "fail" if any(f.severity == "error" for f in findings) else "warn" if findings else "pass"
    results = (
        CheckResult("VLLM101", "A rule that matters", status, findings=findings, paths=("async rollout",)),  # type: ignore[arg-type]
        CheckResult("PY102", "A rule that was skipped", "skipped", "nobody knows"),
        CheckResult(
            "PY103", "A rule that broke", "error", "the rule broke: KeyError", trace="Traceback\n  here"
        ),
    )
    return Report(TARGET, results, 0.5, {"the-fix": "safe"}, **more)  # type: ignore[arg-type]


def finding(message: str = "it is wrong", **more: object) -> Finding:
    given = {
        "evidence": Evidence("this", "that", "/there"),
        "location": Location("/env/lib/verl/x.py", 7),
        **more,
    }
    return Finding(message, severity="error", fix="the-fix", stops=("async rollout",), **given)  # type: ignore[arg-type]


def text(content: Report, width: int | None = None, *, verbose: bool = False) -> str:
    return "\n".join(line.plain for line in render_text.render(content, width=width, verbose=verbose))


def test_every_output_format_has_a_writer() -> None:
    content = {}
    for form in FORMATS:
        file = StringIO()
        view.write(ReportAnswer(report(finding())), form, file)
        content[form] = file.getvalue()
    assert "" not in content.values()
    assert len(set(content.values())) == len(FORMATS)


def test_report_is_ordered_verdict_paths_next_step_evidence() -> None:
    lines = text(report(finding())).splitlines()
    assert lines[0].startswith("WILL FAIL  it is wrong (VLLM101, x.py:7)")
    assert lines[-1].startswith("WILL FAIL: 1 error")
    order = [
        next(i for i, line in enumerate(lines) if part in line)
        for part in ("WILL FAIL", "async rollout", "verl-doctor fix", "VLLM101 error")
    ]
    assert order == sorted(order)


def test_headline_of_a_long_message_keeps_its_beginning_and_its_end() -> None:
    content = report(finding(f"data.path {'goes on and on ' * 30}but must be 7"))
    first = text(content).splitlines()[0]
    assert first.startswith("WILL FAIL  data.path goes on")
    assert first.endswith("but must be 7 (VLLM101, x.py:7)")


def test_next_command_examines_the_same_target() -> None:
    assert "\n  verl-doctor fix --python /env/bin/python\n" in text(report(finding()))
    assert "verl-doctor fix" not in text(
        replace(report(finding()), target={**TARGET, "arguments": ["--facts", "f"]})
    )


def test_unsafe_repair_of_the_first_fault_is_a_next_step() -> None:
    step = "verl-doctor fix --apply --unsafe --select VLLM101 --python /env/bin/python"
    content = report(finding(), replace(finding(), fix="other-fix"))
    unsafe = replace(content, fix_safety={"the-fix": "unsafe", "other-fix": "safe"})
    assert [command for command, _ in next_steps(unsafe)][2] == step
    assert step not in [command for command, _ in next_steps(content)]


def test_next_steps_select_what_stops_the_job_if_others_have_repairs_too() -> None:
    warning = replace(finding(), severity="warning", fix="other-fix")
    found = report(finding())
    also = replace(found, fix_safety={"the-fix": "safe", "other-fix": "unsafe"})
    more = replace(also, results=(*found.results, CheckResult("PKG101", "t", "warn", findings=(warning,))))
    assert next(command for command, _ in next_steps(found)) == "verl-doctor fix --python /env/bin/python"
    assert [command for command, _ in next_steps(more)] == [
        "verl-doctor fix --select VLLM101 --python /env/bin/python",
        "verl-doctor fix --apply --select VLLM101 --python /env/bin/python",
        "verl-doctor explain VLLM101",
    ]


def test_repair_of_a_variable_has_the_folder_that_it_needs() -> None:
    about = finding(subject=Subject("variable", "X"))
    found = replace(report(about), fixes_of_variables=frozenset({"the-fix"}))
    options = "--apply --select VLLM101 --output-env env --python /env/bin/python"
    assert repair_command("VLLM101", about, found) == f"verl-doctor fix {options}"
    assert "verl-doctor fix --apply --output-env env --python /env/bin/python" in text(found).splitlines()[9]
    assert "--output-env" not in repair_command("VLLM101", about, report(about))
    assert "--output-env" in repair_command("VLLM101", replace(about, location=None), report(about))


def test_place_and_remedy_are_a_comment_among_the_commands() -> None:
    by_hand = replace(finding(remedy="write it"), fix=None)
    lines = text(report(by_hand)).splitlines()
    first = lines[lines.index("Next:") + 1]
    assert first == "  # /env/lib/verl/x.py:7: write it"
    install = finding(remedy="install math_verify with the job's Python")
    lines = text(report(replace(install, fix=None))).splitlines()
    assert "  # /env/lib/verl/x.py:7: install math_verify with the job's Python" in lines
    (anywhere,) = (why for command, why in next_steps(report(replace(by_hand, location=None))) if not command)
    assert anywhere == "write it"


def test_verdict_by_selected_rules_names_them() -> None:
    target = {**TARGET, "arguments": ["--select", "VLLM101", "run.sh"]}
    chosen = replace(report(), results=report().results[:1], target=target)
    assert text(chosen).splitlines()[0] == "NO FAULT FOUND  by 1 selected rule (VLLM101)"
    assert text(replace(chosen, target=TARGET)).splitlines()[0] == "NO FAULT FOUND  by 1 rule"
    repair = Repair("the-fix", "VLLM101", "t", "safe", "repaired", transaction="/j/0001")
    repaired = text(replace(chosen, repairs=(repair,), applied=True)).splitlines()
    assert repaired[-1] == "NO FAULT FOUND  by 1 selected rule (VLLM101)"
    assert "  verl-doctor check run.sh" in repaired


@pytest.mark.parametrize("transaction", [None, "/j/0001"])
def test_repair_that_is_still_in_place_can_be_undone(transaction: str | None) -> None:
    repair = Repair("the-fix", "VLLM101", "t", "safe", "still failing", transaction=transaction)
    lines = text(replace(report(finding()), repairs=(repair,), applied=True)).splitlines()
    assert ("  verl-doctor undo /j/0001" in lines) == (transaction is not None)


def test_step_after_a_missing_verl_names_one_interpreter() -> None:
    target: dict[str, Any] = {
        **TARGET,
        "verl": None,
        "arguments": ["--python", "/env/my python", "--verl", "/a b", "run.sh"],
    }
    (command, _), *_ = next_steps(replace(report(), target=target, unexamined="no verl was found"))
    assert command == "verl-doctor check --python PATH/TO/bin/python --verl '/a b' run.sh"
    target["arguments"].insert(0, "--deep")
    (command, _), *_ = next_steps(replace(report(), target=target, unexamined="no verl was found"))
    assert command == "verl-doctor check --python PATH/TO/bin/python --deep --verl '/a b' run.sh"


def test_command_for_a_finding_selects_its_rule_alone() -> None:
    target = {**TARGET, "arguments": ["--select", "VLLM", "--verl", "/v"]}
    lines = text(replace(report(finding()), target=target), verbose=True)
    assert "\n  fix      verl-doctor fix --apply --select VLLM101 --verl /v\n" in lines
    assert "\n  verl-doctor fix --apply --select VLLM --verl /v\n" in lines


def skipped(code: str, reason: str, kind: ReasonKind, **more: Any) -> CheckResult:
    return CheckResult(code, "t", "skipped", reason, reason_kind=kind, **more)


def test_only_rules_that_could_not_check_are_listed_with_their_reasons() -> None:
    results = (
        CheckResult("PY102", "t", "pass"),
        skipped("NET130", "needs --deep", "cost not paid", deliberate=True),
        skipped("CUDA104", "not tried", "cost not paid"),
        skipped("ENV101", "ignored until 2026-12-31: a fork", "ignored until a date", deliberate=True),
        skipped("VLLM102", "follows from VLLM101", "follows from another rule", follows_from="VLLM101"),
        CheckResult("SITE101", "t", "not_applicable", "no paths are named", reason_kind="fact absent"),
        skipped("RAY101", "ray/_private/node.py cannot be read", "fact unknown"),
        skipped("RAY102", "ray/_private/node.py cannot be read", "fact unknown"),
        *(skipped(f"HOST10{number}", f"file {number} cannot be read", "fact unknown") for number in range(4)),
    )
    lines = text(replace(report(), results=results)).splitlines()
    assert [line.strip() for line in lines if "could not check" in line] == [
        "2 rules could not check: ray/_private/node.py cannot be read",
        "1 rule could not check: file 0 cannot be read",
        "1 rule could not check: file 1 cannot be read",
        "2 more rules could not check (-v shows why)",
    ]
    assert not any(left_out in "\n".join(lines) for left_out in ("needs --deep", "not tried", "follows from"))
    assert "needs --deep: NET130" in text(replace(report(), results=results), verbose=True)


def test_verdict_without_sources_states_what_could_not_be_read() -> None:
    blind = skipped("VLLM102", "the calls of verl cannot be read", "fact unknown", blind=True)
    first = text(replace(report(), results=(CheckResult("PY102", "t", "pass"), blind))).splitlines()[0]
    assert first == "NOT CHECKED  1 rule could not check: the calls of verl cannot be read"


@pytest.mark.parametrize(
    ("safety", "command"),
    [("safe", "fix --apply --select"), ("unsafe", "fix --apply --unsafe --select"), ("manual", "fix --select")],
)  # fmt: skip
@pytest.mark.parametrize("width", [None, 40])
def test_finding_names_the_command_that_repairs_it(safety: Safety, command: str, width: int | None) -> None:
    for verbose in (False, True):
        content = replace(report(finding()), fix_safety={"the-fix": safety})
        lines = text(content, width, verbose=verbose).splitlines()
        (row,) = (line for line in lines if line.startswith("  fix"))
        assert row == f"  fix      verl-doctor {command} VLLM101 --python /env/bin/python"


@pytest.mark.parametrize("applied", [False, True])
def test_plan_without_verl_states_why_once_and_names_the_next_step(applied: bool) -> None:
    target = {**TARGET, "verl": None}
    unknown = replace(report(), results=(), target=target, unexamined="no verl was found", applied=applied)
    lines = text(replace(unknown, repairs=())).splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "NOT CHECKED  no verl was found",
        "Next:",
    ]
    assert lines[-1].strip() == "verl-doctor check --python PATH/TO/bin/python"


def test_lines_fit_the_terminal() -> None:
    long = finding("a sentence that goes on and on " * 8, remedy="type this " * 20)
    assert max(map(len, text(report(long), width=80).splitlines())) <= 80
    repair = Repair("the-fix", "VLLM101", "a title that is longer than it should be " * 4, "safe", "repaired")
    repaired = report(repairs=(repair,))
    assert max(map(len, text(repaired, width=80).splitlines())) <= 80


def test_stopped_path_wraps_its_codes_after_its_name() -> None:
    codes = [f"VLLM1{number}" for number in range(10, 26)]
    results = tuple(
        CheckResult(code, "t", "fail", findings=(finding(),), paths=("async rollout",)) for code in codes
    )
    lines = text(replace(report(), results=results), width=80).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("  async rollout"))
    assert max(map(len, lines)) <= 80
    assert lines[start + 1].startswith(" " * len("  async rollout  ") + "VLLM1")


def test_scripts_judged_separately_name_what_could_not_be_judged() -> None:
    passed = CheckResult("CFG101", "t", "pass")
    lacking = replace(report(), results=(passed, skipped("PY102", "no packages", "fact unknown")))
    several = {"b.sh": lacking, "c.sh": lacking, "a.sh": report(finding())}
    jobs = tuple(JobReport(f"/here/{name}", job) for name, job in several.items())
    lines = list(each.lines(replace(lacking, jobs=jobs), Path("/here")))
    assert lines == [
        "b.sh, c.sh: 1 rule could not check: no packages",
        "3 scripts judged, 1 will fail, 0 not checked",
    ]
    broken = tuple(JobReport(f"/here/{name}", report()) for name in several)
    (reason, _) = each.lines(replace(report(), jobs=broken), Path("/here"))
    assert reason == "NOT CHECKED: 1 rule could not check: the rule broke: KeyError"


@pytest.mark.parametrize("width", [80, 40, None])
def test_commands_to_copy_have_separate_lines(width: int | None) -> None:
    python = "/a/folder/that/is/deep/and/has/a/long/name/so/that/eighty/columns/do/not/hold/it/bin/python"
    content = replace(report(finding()), target={**TARGET, "arguments": ["--python", python]})
    lines = text(content, width).splitlines()
    start = lines.index("Next:")
    commands = [line for line in lines[start + 1 :] if line.startswith("  verl-doctor")]
    assert f"  verl-doctor fix --python {python}" in commands
    assert "  verl-doctor explain VLLM101" in commands


def test_finding_is_short_unless_details_are_requested() -> None:
    short, whole = (
        text(report(finding(remedy="do this"))),
        text(report(finding(remedy="do this")), verbose=True),
    )
    assert "VLLM101 error  it is wrong (/env/lib/verl/x.py:7)\n  do       do this\n" in short
    for row in ("found", "expected", "read"):
        assert f"\n  {row} " not in short
        assert f"\n  {row} " in whole


def test_terminal_shows_the_first_warnings_and_counts_the_rest() -> None:
    many = [replace(finding(f"warning {number}"), severity="warning") for number in range(12)]
    assert "and 4 more warnings (-v shows all)" in text(report(*many), 80)
    assert "warning 11" in text(report(*many), 80, verbose=True)
    assert "warning 11" in text(report(*many))


def test_last_line_is_right_for_a_single_warning_that_is_shown() -> None:
    warned = CheckResult("VLLM101", "t", "warn", findings=(replace(finding(), severity="warning"),))
    lines = text(replace(report(), results=(warned,)), 80).splitlines()
    assert any(line.startswith("VLLM101 warning  it is wrong") for line in lines)
    assert lines[-1] == "NO FAULT FOUND: 1 warning; -v shows all; 0.5 s"
    folded = finding(also=(Location("/x.py", 3),))
    assert "1 more place (-v shows all)" in text(report(folded))


def test_pipe_gets_one_line_per_message() -> None:
    message = "a sentence that goes on and on " * 8
    assert any(message.strip() in line for line in text(report(finding(message))).splitlines())


def test_further_places_are_folded_unless_requested() -> None:
    many = finding(also=tuple(Location("/x.py", line) for line in range(20)))
    assert "20 more places (-v shows all)" in text(report(many))
    assert "/x.py:19" in text(report(many), verbose=True)


def test_traceback_of_a_broken_rule_is_shown_only_when_verbose() -> None:
    assert "Traceback" not in text(report())
    assert "could not check" in text(report())
    assert "Traceback" in text(report(), verbose=True)


def test_rules_broken_for_the_same_reason_share_one_line() -> None:
    broken = tuple(
        CheckResult(f"NET{number}", "t", "error", "no more threads", trace=f"{number % 2} was not read")
        for number in range(100, 112)
    )
    content = text(replace(report(), results=(*report().results, *broken)))
    assert content.count("no more threads") == 1
    assert "12 rules could not check: no more threads" in content
    assert "NET107 and 4 more" in content
    assert "PY103 could not check: the rule broke: KeyError" in content
    loud = text(replace(report(), results=broken), verbose=True)
    assert "NET111" in loud
    assert loud.count("0 was not read") == 1


def test_finding_without_a_fix_is_named_next_to_a_repair_of_the_same_rule() -> None:
    repair = Repair("the-fix", "VLLM101", "t", "safe", "repaired")
    assert "VLLM101, " not in text(report(repairs=(repair,)))
    left = report(replace(finding(), fix=None), repairs=(repair,))
    assert "No automatic repair: VLLM101, PY103" in text(left)


def test_folder_for_variables_is_the_one_that_the_user_named() -> None:
    variable = finding(location=None, subject=Subject("variable", "NCCL_DEBUG"))
    content = report(variable)
    assert "--output-env env " in repair_command("VLLM101", variable, content)
    named = replace(content, environment=EnvironmentFiles("/my vars/env.sh", "/my vars/ray.yaml"))
    assert "--output-env '/my vars' " in repair_command("VLLM101", variable, named)


def test_document_matches_its_schema() -> None:
    schema = schema_text("report")
    repair = Repair(
        "the-fix", "VLLM101", "t", "safe", "repaired", changes=({"kind": "replace_file", "path": "/x"},)
    )
    for content in (
        report(),
        report(finding()),
        report(finding(location=None)),
        report(finding(), repairs=(repair,)),
        replace(report(), jobs=(JobReport("/jobs/run.sh", report(finding())),)),
    ):
        validate(json.loads(json.dumps(document(content))), schema)


def test_document_holds_what_was_not_judged_in_each_file_and_what_was_silenced() -> None:
    hidden = replace(report().results[0], status="skipped", deliberate=True, silenced_errors=2)
    waiting = replace(
        report().results[0],
        code="CFG102",
        status="skipped",
        reason="CFG101 failed",
        reason_kind="follows from another rule",
        follows_from="CFG101",
    )
    content = replace(report(), results=(hidden, waiting), unexamined="no verl was found")
    found = document(replace(content, jobs=(JobReport("/jobs/run.sh", content),)))
    assert found["results"][0]["silenced_errors"] == 2
    assert found["jobs"] == [
        {
            "file": "/jobs/run.sh",
            "verdict": "could_not_check",
            "not_judged": [
                {
                    "codes": [],
                    "reason": "no verl was found",
                    "reason_kind": None,
                    "follows_from": None,
                },
                {
                    "codes": ["CFG102"],
                    "reason": "CFG101 failed",
                    "reason_kind": "follows from another rule",
                    "follows_from": "CFG101",
                },
            ],
            "silenced_errors": 2,
        }
    ]


@pytest.mark.slow
@given(st.text())
def test_control_characters_in_input_are_neutralised(content: str) -> None:
    whole = text(
        report(finding(content, evidence=Evidence(content, content, content), location=Location(content, 1))),
        width=80,
    )
    assert "\x1b" not in whole
    assert harmless(whole, keep="\n") == whole


@pytest.mark.slow
@given(st.text())
def test_junit_is_valid_xml_for_any_input(content: str) -> None:
    suite = ET.fromstring(
        junit.render(
            report(
                finding(content),
                repairs=(Repair(content, "VLLM101", content, "safe", "planned", content, diff=content),),
            )
        )
    )
    assert suite.get("failures") == "1"
    assert suite.get("errors") == "1"


@pytest.mark.parametrize(
    "content", ["a | b", "<script>", "`code`", "line\nbreak", "# heading", "[link](x)", "``` fence"]
)
def test_markdown_in_input_is_escaped(content: str) -> None:
    lines = list(markdown.render(report(finding(content, evidence=Evidence(content)))))
    assert not any(
        line.startswith(content[:1]) and content.startswith(("#", "`")) and content in line
        for line in lines[1:]
        if not line.startswith("###")
    )
    assert all("\n" not in line for line in lines)
    assert "<script>" not in "\n".join(lines)


def test_fence_is_longer_than_any_in_its_content() -> None:
    assert next(markdown_text.fenced("````\nx", "diff")) == "`````diff"


def test_long_words_are_not_broken() -> None:
    path = "/very/long" * 20
    assert any(path in line for line in wrapped(f"at {path} there", 40))


def test_every_phase_has_a_text_and_is_in_the_schema_in_order() -> None:
    schema = json.loads(schema_text("report"))
    assert schema["$defs"]["PathDocument"]["properties"]["phase"]["enum"] == [*PHASES, None]
    words = [stopped_by(replace(finding(), stops=("job",), phase=phase)) for phase in PHASES]
    assert len(set(words)) == len(PHASES)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("actor_rollout_ref.rollout.mode", "actor_rollout_ref.rollout.mode"),
        ("torch>=2.6", "torch>=2.6"),
        ("_quoted_ __path__", "\\_quoted\\_ \\_\\_path\\_\\_"),
        ("> quoted", "\\> quoted"),
    ],
)
def test_only_characters_that_markdown_interprets_are_escaped(said: str, shown: str) -> None:
    assert markdown_text.escaped(said) == shown

"""Findings of a step's rules, and those already found on the old cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.commands.checklist.checklist import Invocation, State
from verl_doctor.toolkit.commands.checklist.steps import (
    _JUDGES,
    Look,
    _by_rules,
    _judge_job,
    _judge_sites_unset,
    _step,
)
from verl_doctor.toolkit.commands.checklist.trials import judge_debug_run
from verl_doctor.toolkit.comparison.cause import key_of
from verl_doctor.toolkit.comparison.meaning import ByHand
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import CheckResult, Report, Status
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Options, Target, discover


def finding(severity: Severity, message: str = "it is cold in /a") -> Finding:
    return Finding(message, Evidence("cold", "warm"), severity=severity)


def report_with(status: Status, *findings: Finding, reason: str = "", deliberate: bool = False) -> Report:
    return Report({}, (CheckResult("PY103", "t", status, reason, findings=findings, deliberate=deliberate),))


@pytest.mark.parametrize(
    ("report", "state", "evidence"),
    [
        (report_with("pass"), "done", "PY103 passed"),
        (report_with("pass", finding("info")), "done", "PY103 passed"),
        (report_with("warn", finding("warning")), "open", "PY103 it is cold"),
        (report_with("warn", *[finding("warning")] * 6), "open", "2 more findings"),
        (report_with("fail", finding("error")), "failed", "PY103 it is cold"),
        (report_with("skipped", reason="no answer"), "unknown", "no answer"),
        (report_with("error", reason="it broke"), "unknown", "it broke"),
        (report_with("not_applicable", reason="no verl"), None, "no verl"),
        (report_with("skipped", reason="ignored until then", deliberate=True), None, ""),
        (Report({}, ()), None, ""),
    ],
)
def test_state_of_a_step_follows_from_its_rules(report: Report, state: State | None, evidence: str) -> None:
    found = _by_rules(["PY103"], report, "do this", ())
    assert found.state == state
    assert evidence in " ".join(found.evidence)
    assert bool(found.do) == (state in {"open", "failed", "unknown"})


def test_warnings_of_the_old_cluster_keep_no_step_open() -> None:
    before = {key_of("PY103", finding("warning", "it is cold in /b"))}
    found = _by_rules(["PY103"], report_with("warn", finding("warning")), "do this", before)
    assert (found.state, found.evidence) == ("done", ("same as on the old cluster: PY103 it is cold in /a",))
    more = report_with("warn", finding("warning"), finding("warning", "it is wet"))
    found = _by_rules(["PY103"], more, "do this", before)
    assert (found.state, found.evidence[0]) == ("open", "PY103 it is wet")


def test_error_stops_the_job_even_if_the_old_cluster_had_it_too() -> None:
    before = {key_of("PY103", finding("error", "it is cold in /b"))}
    found = _by_rules(["PY103"], report_with("fail", finding("error")), "do this", before)
    evidence = ("same as on the old cluster: PY103 it is cold in /a",)
    assert (found.state, found.evidence, found.do) == ("failed", evidence, "do this")
    found = _by_rules(
        ["PY103"], report_with("fail", finding("error")), "do this", before, "a step was logged"
    )
    assert (found.state, found.evidence) == ("done", evidence)
    later = report_with("fail", replace(finding("error"), phase="checkpoint"))
    assert _by_rules(["PY103"], later, "do this", before, "a step was logged").state == "failed"


@pytest.mark.parametrize("name", ["cluster_paths.py", ""])
def test_missing_paths_name_where_they_can_come_from(name: str, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_text('MODEL = "/models/qwen"\n')
    found = _judge_sites_unset("no paths of this cluster are named in [tool.verl-doctor.sites]", tmp_path)
    command, _, comment = found.do.partition("  # ")
    assert command == f"verl-doctor sites import {name or 'FILE.py'} --apply"
    assert comment == "writes the paths into the configuration; without --apply it shows the change"
    (sentence,) = found.evidence
    assert ("write them there" in sentence) is not bool(name)
    assert name in sentence
    assert 'MODEL = "/models/qwen"' in sentence


def test_script_is_named_instead_of_the_command(tmp_path: Path) -> None:
    options = Options(launch=("env", "A=b c", "python3", "-m", "verl.trainer.main_ppo"), data=(tmp_path,))
    run: Any = SimpleNamespace(target=discover(options, Machine(cwd=tmp_path)))
    again = Invocation(run.target, "OLD.json")
    (judged,) = judge_debug_run(run, cast("Any", None), None, " ignored", again)
    assert judged.do == f"verl-doctor checklist --from OLD.json --data {tmp_path} LAUNCH_SCRIPT"


def test_commands_keep_the_options_that_the_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "verl_doctor.toolkit.commands.checklist"
    monkeypatch.setattr(f"{names}.trials.trial_cache.recall", lambda *_: None)
    monkeypatch.setattr(f"{names}.steps._entries", list)
    monkeypatch.setattr(f"{names}.steps.compared", lambda *_: None)
    run: Any = SimpleNamespace(target=Target(Path("/env/bin/python"), "--python"))
    nodes = RequestedNodes(("node1", "node2"), "srun", 90.0)
    old = Snapshot({}, path="/old.json")
    look = Look(
        run, Collection((), {}), job_with().report, old=old, log=Path("a.log"), node_options=nodes.arguments
    )
    named = "--nodes 'node[1-2]' --via srun --budget 90s"
    (quick,) = _JUDGES["quick"](look)
    target = "--python /env/bin/python"
    assert quick.do == f"verl-doctor checklist --from /old.json {named} --log a.log --run {target}"
    (missing,) = _JUDGES["environment"](replace(look, old=None))
    command, _, _ = missing.do.partition("  # ")
    assert command == f"verl-doctor checklist --from OLD.json {named} --log a.log {target}"


def test_command_about_nodes_names_them() -> None:
    lost = CheckResult("SITE101", "t", "fail", findings=(finding("error"),))
    look = replace(job_with(), nodes=Report({}, (lost,)), node_options=("--cluster",))
    entry = {"key": "x", "title": "t", "do": "verl-doctor check --select SITE", "on_nodes": ["SITE101"]}
    assert _step(entry, look).do == "verl-doctor check --select SITE --cluster run.sh"


def job_with(*results: CheckResult) -> Look:
    nothing: Any = SimpleNamespace(target=SimpleNamespace(arguments=["run.sh"], files=()))
    report = Report({"arguments": ["run.sh"]}, results, fix_safety={"script-word": "safe"})
    return Look(cast("Any", nothing), nothing, report)


def test_fault_of_the_launch_script_fails_the_step_of_the_job() -> None:
    typo = Finding("no setting data.x", Evidence("x"), Location("/jobs/run.sh", 9), "write data.y", "error")
    elsewhere = CheckResult("VLLM101", "t", "fail", findings=(finding("error"),))
    (judged,) = _judge_job(job_with(CheckResult("CFG101", "t", "fail", findings=(typo,)), elsewhere))
    assert (judged.state, judged.evidence) == ("failed", ("CFG101 no setting data.x (run.sh:9)",))
    assert judged.do == ByHand("/jobs/run.sh:9: write data.y")
    assert isinstance(judged.do, ByHand)
    repaired = replace(typo, fix="script-word")
    (judged,) = _judge_job(job_with(CheckResult("CFG101", "t", "fail", findings=(repaired,))))
    assert judged.do == "verl-doctor fix run.sh"
    assert not isinstance(judged.do, ByHand)


def test_step_of_the_job_is_not_ticked_while_another_step_stops_the_job() -> None:
    elsewhere = CheckResult("PKG101", "t", "fail", findings=(finding("error"),))
    passed, skipped = CheckResult("CFG101", "t", "pass"), CheckResult("CFG120", "t", "skipped", "no torch")
    (judged,) = _judge_job(job_with(elsewhere, passed, skipped))
    assert judged.state == "unknown"
    (sentence,) = judged.evidence
    assert sentence.endswith("PKG101 stops the job before others would show: 1 rule could not check")
    broken = CheckResult("CFG101", "t", "error", "it broke")
    (judged,) = _judge_job(job_with(broken))
    assert (judged.state, judged.do) == ("unknown", "verl-doctor check run.sh")


@pytest.mark.parametrize(("deliberate", "state"), [(False, "unknown"), (True, "done")])
def test_step_of_the_job_names_why_rules_could_not_check(*, deliberate: bool, state: State) -> None:
    passed = CheckResult("CFG101", "t", "pass")
    skipped = CheckResult("CFG120", "t", "skipped", "no torch", deliberate=deliberate)
    (judged,) = _judge_job(job_with(passed, skipped))
    assert judged.state == state
    assert ("1 rule could not check: no torch" in judged.evidence[0]) is not deliberate


def test_errors_of_the_old_cluster_fail_the_step_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimpleNamespace(kept={key_of("CFG101", finding("error"))})
    monkeypatch.setattr(Look, "comparison", kept)
    (judged,) = _judge_job(job_with(CheckResult("CFG101", "t", "fail", findings=(finding("error"),))))
    kept_error = "same as on the old cluster: CFG101 it is cold in /a"
    assert (judged.state, judged.evidence) == ("failed", (kept_error,))
    monkeypatch.setattr(Look, "logged", "a step was logged")
    (judged,) = _judge_job(job_with(CheckResult("CFG101", "t", "fail", findings=(finding("error"),))))
    assert (judged.state, judged.evidence) == ("done", ("a step was logged", kept_error))

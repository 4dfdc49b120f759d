"""`verl-doctor smoke`: three output formats, usage errors, and whole climbs on packages of a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.ended import wait_for_end
from support.miniatures.smoke import packages
from support.running import Doctor, index_handed_on, ran
from support.schemas import validate

from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung, Step
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.smoke import document as smoke_document
from verl_doctor.toolkit.commands.smoke import render
from verl_doctor.toolkit.commands.smoke.answer import SmokeAnswer
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Evidence, Finding
from verl_doctor.toolkit.verdict import EXIT_CODES, STATES, Verdict

FINE = SmokeRung(1, "imports and files", "passed", 4.2, steps=(Step("import torch", 2.5, 2.4),))
BROKEN = SmokeRung(
    3,
    "Ray",
    "failed",
    61.0,
    "start Ray: OSError: \x1b[31mno room\x1b[0m left on device, which is a sentence that is longer than a line has room for",
    "make room",
    "SMOKE106",
    ("  File a.py, line 1", "OSError: no room " + "x" * 200),
    "/state/ray.log",
)
ABOVE = SmokeRung(4, "vLLM", "not reached", cause="rung 3 failed")
NOT_HERE = SmokeRung(4, "vLLM", "not applicable", cause="without a GPU a vLLM for CPUs is needed")
LATE = SmokeRung(4, "vLLM", "not reached", cause="the time limit of --budget has passed")


def finding(message: str) -> Finding:
    return Finding(message, Evidence("x"), severity="error")


REPORT = Report(
    {"python": "/env/bin/python"},
    (
        CheckResult(
            "HOST108", "t", "fail", findings=(finding("the path is too long"), finding("so is that"))
        ),
        CheckResult("RAY115", "t", "fail", findings=(finding("another cluster"),)),
        CheckResult("SMOKE106", "t", "fail", findings=(finding("rung 3 failed"),)),
    ),
)


NOTHING = replace(REPORT, results=())


@pytest.mark.parametrize(
    ("rungs", "report", "verdict", "word"),
    [
        (
            (FINE, BROKEN, ABOVE),
            REPORT,
            "failures",
            "WILL FAIL  rung 3, Ray, fails after 65 s, on the CPU (--cpu)",
        ),
        (
            (FINE, NOT_HERE),
            NOTHING,
            "ok",
            "NO FAULT FOUND  rung 1 passes after 4 s, on the CPU (--cpu); not applicable here: 4",
        ),
        ((FINE,), REPORT, "failures", "WILL FAIL  verl-doctor check finds HOST108, although rung 1 passes"),
        (
            (FINE, LATE),
            NOTHING,
            "could_not_check",
            "NOT CHECKED  not everything was tried, on the CPU (--cpu)",
        ),
        ((NOT_HERE,), NOTHING, "could_not_check", "NOT CHECKED"),
    ],
)
def test_verdict_follows_from_the_rungs(
    rungs: tuple[SmokeRung, ...], report: Report, verdict: Verdict, word: str
) -> None:
    run = SmokeRun("cpu", "--cpu", rungs)
    assert SmokeAnswer(run, report).exit_code() == EXIT_CODES[verdict]
    assert str(next(render.text_lines(run, report, 200))).startswith(word)
    document = smoke_document.document(run, report)
    assert (document["verdict"], document["paths"][0]["state"]) == (verdict, STATES[verdict])
    validate(json.loads(json.dumps(document)), schema_text("smoke"))


def test_text_fits_its_columns_and_names_cause_log_and_verdict() -> None:
    run = SmokeRun("cpu", "--cpu", (FINE, BROKEN, ABOVE))
    lines = [str(line) for line in render.text_lines(run, REPORT, 80)]
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "  3  Ray                FAILED    61.0 s" in text
    assert "\\x1b[31mno room" in text
    assert "     | OSError: no room" in text
    assert "     log: /state/ray.log" in text
    far = replace(
        BROKEN,
        log="/home/somebody/.local/state/verl-doctor/smoke/2026-11-22T02-19-49-vm-u07/rung-2/tensor.log",
    )
    lines = [str(line) for line in render.text_lines(SmokeRun("cpu", "--cpu", (far,)), REPORT, 80)]
    assert f"       {far.log}" in lines, "a path stands alone in its line where it does not fit"
    assert "verl-doctor check: HOST108 the path is too long" in text
    assert "another cluster" not in text
    assert lines[-2:] == ["Next:", "  verl-doctor explain SMOKE106"]


def test_markdown_has_a_row_for_each_rung() -> None:
    lines = list(render.markdown_lines(SmokeRun("cpu", "--cpu", (FINE, BROKEN, ABOVE)), REPORT))
    assert lines[0] == "## verl-doctor smoke: WILL FAIL"
    assert [line.split(" | ")[2] for line in lines if line.startswith("| ")][1:] == [
        "passed",
        "failed",
        "not reached",
    ]
    assert "* log: `/state/ray.log`" in lines


def test_schema_is_printed(here: Doctor, tmp_path: Path) -> None:
    assert json.loads(here("schema", "smoke", cwd=tmp_path).stdout) == json.loads(schema_text("smoke"))


def test_usage_error_is_one_sentence(here: Doctor, tmp_path: Path) -> None:
    for arguments, words in (
        (("--rung", "1", "--up-to", "2"), "choose either --rung or --up-to"),
        (("--rung", "6"), "6 is not in the range 1<=x<=5"),
        (("--script", "no.sh"), "no such file"),
    ):
        done = here("smoke", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def environ(tmp_path: Path, **changed: str) -> dict[str, str]:
    site = packages(tmp_path / "site", **changed)
    return {**os.environ, "PYTHONPATH": str(site), "HOME": str(tmp_path), "VIRTUAL_ENV": ""}


def smoke(tmp_path: Path, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verl_doctor.toolkit", "smoke", "--cpu", *arguments]
    with index_handed_on(tmp_path):
        return ran(command, tmp_path, environ(tmp_path, **changed))


@pytest.mark.slow
def test_climb_ends_at_the_failing_rung_and_keeps_its_log(tmp_path: Path) -> None:
    done = smoke(tmp_path, "--format", "json", ray="def init(**options): raise OSError('no room')")
    parsed = json.loads(done.stdout)
    validate(parsed, schema_text("smoke"))
    assert done.returncode == 1, done.stderr
    assert [rung["status"] for rung in parsed["rungs"]] == [
        "passed",
        "passed",
        "failed",
        "not reached",
        "not reached",
    ]
    assert parsed["rungs"][2]["cause"] == "start Ray: OSError: no room"
    assert "OSError: no room" in Path(parsed["rungs"][2]["log"]).read_text()
    assert [finding["code"] for finding in parsed["findings"]] == ["SMOKE106"]
    kept = tmp_path / ".local" / "state" / "verl-doctor" / "smoke"
    assert [path.name for path in kept.glob("*/rung-*")] == ["rung-3"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--script", "empty.sh"], ["--", "rm", "-rf", "x"]])
def test_script_that_does_not_start_verl_is_reported(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.sh").write_text("echo hello\n")
    (tmp_path / "x").touch()
    done = smoke(tmp_path, "--rung", "2", *words)
    assert done.returncode == 0, done.stderr
    unwrapped = " ".join(done.stdout.split())
    assert f"{' '.join(words[1:])} was not used: it contains no command that starts verl" in unwrapped
    assert (tmp_path / "x").exists()


@pytest.mark.slow
def test_logs_of_passed_rungs_are_kept_only_on_request(tmp_path: Path) -> None:
    kept = tmp_path / ".local" / "state" / "verl-doctor" / "smoke"
    assert smoke(tmp_path, "--up-to", "2").returncode == 0
    assert list(kept.iterdir()) == []
    assert smoke(tmp_path, "--up-to", "2", "--keep").returncode == 0
    assert {path.name for path in kept.glob("*/rung-*")} == {"rung-1", "rung-2"}


@pytest.mark.slow
def test_named_verl_tree_is_used(tmp_path: Path) -> None:
    other = packages(tmp_path / "checkout") / "verl"
    broken = {"verl__trainer__main_ppo": "raise OSError('the installed one')"}
    assert smoke(tmp_path, "--rung", "1", **broken).returncode == 1
    assert smoke(tmp_path, "--rung", "1", "--verl", str(other.parent), **broken).returncode == 0
    (other / "trainer" / "main_ppo.py").write_text("raise OSError('the other one')")
    done = smoke(tmp_path, "--rung", "1", "--verl", str(other))
    assert done.returncode == 1
    assert "OSError: the other one" in done.stdout


@pytest.mark.slow
def test_tree_that_the_job_would_not_import_is_refused(tmp_path: Path) -> None:
    here, other = (packages(tmp_path / name) / "verl" for name in ("", "other"))
    done = smoke(tmp_path, "--verl", str(other))
    assert done.returncode == 2
    assert f"--verl {other}: a job that starts in this folder imports {here}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_doctor_leaves_nothing_of_the_climb(number: int, tmp_path: Path) -> None:
    hangs = "import subprocess, time\nprint('PID', subprocess.Popen(['sleep', '99'], start_new_session=True).pid)\ntime.sleep(99)"
    command = [sys.executable, "-m", "verl_doctor.toolkit", "smoke", "--cpu", "--rung", "1"]
    doctor = subprocess.Popen(
        command, env=environ(tmp_path, ray=hangs), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    logs = tmp_path / ".local" / "state" / "verl-doctor" / "smoke"
    unwrapped: list[str] = []
    while not unwrapped:
        assert doctor.poll() is None, doctor.communicate()
        time.sleep(0.05)
        texts = [log.read_text() for log in logs.glob("*/rung-1/import-*.log")]
        unwrapped = [text.splitlines()[0] for text in texts if text.startswith("PID") and "\n" in text]
    grandchild = unwrapped[0].split()[1]
    doctor.send_signal(number)
    report, error = doctor.communicate(timeout=300)
    assert doctor.returncode == (-9 if number == signal.SIGKILL else 3)
    assert ("stopped after" in report) == (number != signal.SIGKILL)
    assert "Traceback" not in error
    wait_for_end([grandchild])

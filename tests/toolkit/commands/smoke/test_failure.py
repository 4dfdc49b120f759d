"""From a child that failed to the step at which it was, the code and the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.smoke.child import Ran
from verl_doctor.toolkit.commands.smoke.failure import failed

CODES = {"start": "SMOKE106", "": "SMOKE107"}
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: no room\n'


def ran(folder: Path, text: str, code: int | None = 1, why: str = "", **told: str) -> Ran:
    log = folder / "ray.log"
    log.write_text(text)
    documents = ({"step": "import ray", "seconds": 0.5, "cpu": 0.4}, told)
    return Ran(code, log, 9.0, why, documents, ended_for="time" if why else "")


def test_code_follows_from_the_step_in_progress(tmp_path: Path) -> None:
    outcome = failed(ran(tmp_path, TRACEBACK, begun="start Ray"), CODES)
    assert (outcome.code, outcome.cause) == ("SMOKE106", "start Ray: OSError: no room")
    assert [(step.name, step.seconds, step.cpu) for step in outcome.steps] == [("import ray", 0.5, 0.4)]
    assert outcome.lines == ('  File "a.py", line 1, in f', "OSError: no room")


def test_hang_has_a_separate_code_and_shows_earlier_output(tmp_path: Path) -> None:
    outcome = failed(ran(tmp_path, TRACEBACK, None, "it did not finish within 60 s", begun="an actor"), CODES)
    assert outcome.code == "SMOKE111"
    assert outcome.cause == "an actor: it did not finish within 60 s; before that: OSError: no room"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "the process was ended by SIGKILL without giving a reason"),
        (-63, "the process was ended by signal 63 without giving a reason"),
        (3, "the process ended with status 3 without giving a reason"),
    ],
)
def test_exit_without_an_error_message_is_described(code: int, words: str, tmp_path: Path) -> None:
    outcome = failed(ran(tmp_path, "working\n", code, begun=""), CODES)
    assert (outcome.code, outcome.cause, outcome.lines) == ("SMOKE107", words, ("working",))


def test_ray_process_log_is_read_if_the_driver_logged_nothing(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "gcs_server.out").write_text("[2026-11-20 12:00:00,000 I 1 1] all is well\n")
    (logs / "raylet.err").write_text("terminate called after throwing an instance of 'std::bad_alloc'\n")
    outcome = failed(
        ran(tmp_path, "", None, "it did not finish within 9 s", begun="start Ray"), CODES, logs=logs
    )
    assert outcome.log == logs / "raylet.err"
    assert outcome.cause.endswith(
        "before that: terminate called after throwing an instance of 'std::bad_alloc'"
    )


def test_fatal_line_of_a_ray_process_is_always_shown(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    line = "(raylet) dlmalloc.cc:161:  Check failed: fd >= 0 create_buffer failed to open file: Read-only file system"
    (logs / "raylet.out").write_text(
        f"[2026-11-22 12:00:00,123 I 77 77] (raylet) main.cc:1: up\n[2026-11-22 12:00:00,124 C 77 77] {line}\n"
    )
    outcome = failed(ran(tmp_path, TRACEBACK, begun="start Ray"), CODES, logs=logs)
    assert outcome.cause == f"start Ray: OSError: no room; the raylet ended: {line}"
    assert outcome.lines[-1] == f"raylet: {line}"

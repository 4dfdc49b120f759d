"""Dialogue with a child: its output is always read, and it ends on request."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from support.trying import LIMITS, unless_disturbed

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.dialogue import Dialogue

LONG = b"x" * 1_000_000  # more than a pipe holds


def dialogue_with(script: str, order: bytes = b"", seconds: float = 120) -> tuple[list[bytes], str]:
    with Machine().open_dialogue([sys.executable, "-c", script], order, patience=0.5) as dialogue:
        lines = list(dialogue.lines(time.monotonic() + seconds))
        return lines, dialogue.last_error


def test_long_request_arrives_completely_while_the_child_prints() -> None:
    script = (
        "import sys; print('y' * 1000000, flush=True); print(len(sys.stdin.buffer.read(1000000)), flush=True)"
    )
    lines, _ = dialogue_with(script, LONG)
    assert [len(lines[0]), lines[1]] == [1_000_000, b"1000000"]


@pytest.mark.parametrize("script", ["import sys; sys.stdin.close(); print('no')", "print('no')"])
def test_child_that_does_not_read_stdin_is_still_read(script: str) -> None:
    assert dialogue_with(script, LONG)[0] == [b"no"]


def test_stderr_is_read_after_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_doctor.toolkit.process.dialogue._LAST_WORDS", 60.0)
    script = "import os, sys, time; os.close(1); time.sleep(0.05); sys.stderr.write('first\\nlast words\\n')"
    assert dialogue_with(script) == ([], "last words")


@pytest.mark.slow
def test_grandchild_holding_the_streams_is_not_waited_for() -> None:
    script = "import subprocess; print('done', flush=True); subprocess.Popen(['sleep', '600'], stdout=-3)"
    begun = time.monotonic()
    assert dialogue_with(script)[0] == [b"done"]
    assert time.monotonic() - begun < 300


@pytest.mark.slow
def test_time_limit_ends_the_dialogue() -> None:
    command = ["sh", "-c", "echo so far; exec sleep 60"]
    lines = []
    for seconds in (1.0, *LIMITS):
        with Machine().open_dialogue(command, b"", patience=0.5) as dialogue:
            lines = list(dialogue.lines(time.monotonic() + seconds))
        if lines:  # on a busy machine it has not even spoken in so few
            break
    assert lines == [b"so far"]


def test_stopped_child_may_clean_up(tmp_path: Path) -> None:
    """The end of its input is the request to stop; only a disobedient child is killed."""
    away = tmp_path / "away"
    script = f"import sys; print('ready', flush=True); sys.stdin.read(); open({str(away)!r}, 'w').close()"
    with Machine().open_dialogue([sys.executable, "-c", script], b"", patience=120) as dialogue:
        assert next(dialogue.lines(time.monotonic() + 120)) == b"ready"
    assert away.exists()


@pytest.mark.slow
def test_child_that_closes_stderr_may_continue() -> None:
    script = "import os, time; os.close(2); time.sleep(0.5); print('late', flush=True)"
    assert dialogue_with(script)[0] == [b"late"]


def test_process_without_pipes_is_refused() -> None:
    class Deaf:
        stdin = stdout = stderr = None

    with pytest.raises(ValueError, match="all three streams"):
        Dialogue(Deaf(), b"")  # type: ignore[arg-type]


@unless_disturbed
def test_no_descriptors_are_leaked() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    dialogue_with("print(1)", LONG)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

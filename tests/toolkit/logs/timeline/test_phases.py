"""The table of phase messages: the fast search finds the same as the slow one, and its advice exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.console import svg
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.logs.timeline import phases
from verl_doctor.toolkit.logs.timeline.phases import (
    BARS,
    BEGINS,
    BREAKS,
    DURATIONS,
    ENDS,
    LOG_PHASES,
    phase_report_offsets,
    phase_reports,
)

TEXTS = [
    (kind, phase, text)
    for kind, table in (
        ("told", DURATIONS),
        ("begin", BEGINS),
        ("end", ENDS),
        ("break", BREAKS),
        ("bar", BARS),
    )
    for phase, text in table
]


@pytest.mark.parametrize(("kind", "phase", "text"), TEXTS)
def test_each_phase_message_is_recognised(kind: str, phase: str, text: str) -> None:
    logged = f"INFO {text.replace('*', 'some words').replace('{s}', '12.5')} 100% [00:12<00:00"
    assert (phase, kind) in {(report.phase, report.kind) for report in phase_reports(logged)}
    assert phase_report_offsets(f"before\n{logged}\nafter".encode()) == {len("before\n")}


def test_phases_are_consistent() -> None:
    assert {phase for _, phase, _ in TEXTS} | {"start", "step", "silence"} == set(LOG_PHASES)
    for phase in LOG_PHASES.values():
        assert set(phase.within) <= set(LOG_PHASES)
        assert len(phase.letter) == 1
        assert 1 <= phase.colour <= svg.COLOURS


def test_advised_codes_and_options_exist(here: Doctor, tmp_path: Path) -> None:
    advice = " ".join(phase.helps for phase in LOG_PHASES.values())
    codes = {check.code for check in registry.load().checks}
    named = re.findall(r"\b[A-Z]{2,5}\d{2,3}\b|(?<=--select )[A-Z]+\b", advice)
    assert named
    assert [word for word in named if not any(code.startswith(word) for code in codes)] == []
    for command in ("warmup", "check"):
        options = here(command, "--help", cwd=tmp_path).stdout
        logged = re.findall(rf"\b{command} ((?:--?[\w-]+ ?[A-Z]*\d*,? ?)+)", advice)
        assert {option for words in logged for option in re.findall(r"--[a-z]+", words)} <= set(
            re.findall(r"--[a-z]+", options)
        )


def test_wide_progress_bar_is_read() -> None:
    (bar,) = phase_reports(
        f"Capturing CUDA graphs (decode, FULL):  97%|{'█' * 400}| 65/67 [00:15<00:00,  4.58it/s]"
    )
    assert (bar.phase, bar.seconds, bar.is_whole) == ("capture", 15, False)


def test_parts_of_a_step_are_read() -> None:
    line = b"step:1 - timing_s/gen:10.5 - timing_s/step:np.float64(29.25) - timing_per_token_ms/gen:1.0 - perf/time_per_step:29.2 - timing_s/adv:2e-05"
    assert phases.parts_of_step(line) == {"gen": 10.5, "step": 29.25, "adv": 2e-05}

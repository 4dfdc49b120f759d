"""The scoreboard holds: its tables fit together, construction predicts the outcome, and logs show the first cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdict import log
from verdict.build import Builder
from verdict.case import Case, Real
from verdict.forecast import Forecast, forecasts, made, write
from verdict.outcomes import CASES, DECIDED, FIRST, HEALTHY, REAL
from verdict.predict import Predictor
from verdict.score import diagnosed, is_phase, logs

CAUSES_IN_LOGS, PHASES_IN_LOGS = 312, 310
"""So many logs have their first cause named, and the phase in which it struck."""


def test_every_row_belongs_to_a_case() -> None:
    assert CASES.keys() >= REAL.keys()
    assert CASES.keys() >= FIRST.keys()


def test_every_case_was_predicted_first_and_failures_have_a_cause() -> None:
    assert [name for name in REAL if name not in FIRST] == []
    for name in DECIDED:
        assert name in HEALTHY or CASES[name].cause, name


def test_every_failure_has_a_phase_and_an_error() -> None:
    for name in DECIDED:
        if name not in HEALTHY:
            assert REAL[name].phase, name
            assert REAL[name].raised or REAL[name].text or REAL[name].outcome == "hung", name


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("step:1 - loss", 0, Real("c", "trained", 0, exit=0)),
        ("step:1 - loss", None, Real("c", "hung", 0, "shell")),
        ("run.sh: line 2: cd: /gone: No such file", 1, Real("c", "died", 0, "shell", "", "cd: /gone: No such file", exit=1)),
        (
            "main_ppo\n  File x, line 1, in validate_config\nValueError: no",
            1,
            Real("c", "died", 0, "validation", "ValueError", "no", exit=1),
        ),
        (
            "main_ppo\nray init kwargs: {}\n(TaskRunnerV1 pid=7) \x1b[36m(x pid=1)\x1b[0m KeyError: 'a'\nOSError: later",
            1,
            Real("c", "died", 0, "workers", "KeyError", "'a'", exit=1),
        ),
        (
            "KeyError: 'a'\n\nThe above exception was the direct cause of the following exception:\n\nRefusedError: no a\nOSError: later",
            1,
            Real("c", "died", 0, "shell", "KeyError", "'a'", "RefusedError: no a", 1),
        ),
    ],
)  # fmt: skip
def test_log_shows_how_far_a_job_got(text: str, code: int | None, expected: Real) -> None:
    case = Case("c", CASES["grpo_plain"].base, "", "")
    assert log.judged(case, code, log.plain(text)) == expected


BUILT = """
validated critic adapter all_prompts_too_long files_with_different_columns rollout_hf model_of_the_hub_offline no_tokenizer
own_reward dynamic_batches tool_talks opo tune tune_two_processes tune_messages_key tune_too_long tune_messages_as_text
tune_two_processes_one_row_each tune_target_modules tune_validation_file_broken quantization_that_the_engine_lacks
""".split()  # noqa: SIM905 - twenty-one names
"""Jobs that CI constructs: healthy ones of several kinds, and those whose failure instant rules alone do not foretell."""


@pytest.mark.thorough
@pytest.mark.real
@pytest.mark.slow(seconds=150)  # the whole file
def test_construction_predicts_the_outcome(predictor: Predictor) -> None:
    cases = map(CASES.__getitem__, BUILT)
    found = [forecast for some in made(predictor.builder.folder, cases, together=21) for forecast in some]
    fails = {
        forecast.case: forecast.verdict == "failures" for forecast in found if forecast.way == "construction"
    }
    assert fails == {name: name not in HEALTHY for name in BUILT}
    assert not any(forecast.alone for forecast in found), "each of them would import verl and vLLM anew"


def test_prediction_is_kept(tmp_path: Path) -> None:
    one = Forecast(
        "c", "construction", "failures", ("BUILD104",), ("workers",), 2.5, stages=("data sets: breaks",)
    )
    file = tmp_path / "kept.jsonl"
    write(file, [one])
    assert forecasts(file) == {("c", "construction"): one}


@pytest.mark.real
@pytest.mark.slow
def test_case_is_built_as_it_was_run(tmp_path: Path, predictor: Predictor) -> None:
    script = Builder(tmp_path, predictor.python).build(CASES["no_prompt_col"])
    assert f"data.train_files={tmp_path}/no_prompt_col/train.parquet" in script.read_text()
    assert "algorithm.adv_estimator=grpo" in script.read_text()


@pytest.mark.slow
def test_first_cause_and_phase_are_found_in_logs_of_failures() -> None:
    found = {name: diagnosed(text) for name, text in logs().items()}
    assert sum(one.is_right(REAL[name]) for name, one in found.items()) >= CAUSES_IN_LOGS
    assert sum(is_phase(one.phase, REAL[name].phase) for name, one in found.items()) >= PHASES_IN_LOGS

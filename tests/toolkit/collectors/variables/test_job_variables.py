"""Variables of the process with which a job starts."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables, job_variables
from verl_doctor.toolkit.facts import Unknown

SHELL = Variables({"CUDA_HOME": "/usr/local/cuda", "HF_HOME": "/home/me/hf"}, ("HF_TOKEN",))


NOT_FOLLOWED = Unknown("not followed")


def job(*settings: Setting, rows: tuple[Effective, ...] = ()) -> JobVariables:
    found = job_variables.collect(
        SHELL, Launch((("run.sh", "shell script"),), settings), EffectiveEnvironment(rows)
    )
    assert isinstance(found, JobVariables)
    return found


def test_shell_applies_without_a_launch_file() -> None:
    found = job_variables.collect(SHELL, Unknown("none"), NOT_FOLLOWED)
    assert found == JobVariables(SHELL.values, {}, ("HF_TOKEN",))
    assert found.has("HF_TOKEN")
    assert not found.has("HF_OTHER")


def test_last_setting_wins() -> None:
    found = job(Setting("HF_HOME", "/a", "run.sh", 2), Setting("HF_HOME", "/b", "run.sh", 5))
    assert (found.get("HF_HOME"), found.places["HF_HOME"]) == ("/b", ("run.sh", 5))


def test_variable_unset_in_a_file_is_removed() -> None:
    found = job(Setting("HF_HOME", None, "run.sh", 2, removed=True))
    assert not found.has("HF_HOME")


def test_undetermined_value_hides_that_of_the_shell() -> None:
    found = job(Setting("HF_HOME", None, "run.sh", 2))
    assert (found.get("HF_HOME"), found.has("HF_HOME")) == ("", True)


def test_value_set_in_a_file_replaces_a_withheld_one() -> None:
    assert job(Setting("HF_TOKEN", "", "run.sh", 2)).undetermined == ()


def worker(name: str, value: Value, path: str = "") -> Effective:
    return Effective(name, Value(), (Value(),), (value,), "the raylet", path, 7 if path else 0)


def test_known_worker_value_wins() -> None:
    rows = (
        worker("HF_HOME", Value("/raylet")),
        worker("CUDA_HOME", Value()),
        worker("VLLM_X", Value("1"), "/env/verl/trainer/constants_ppo.py"),
    )
    found = job(Setting("HF_HOME", "/script", "run.sh", 2), rows=rows)
    assert found.values == {"HF_HOME": "/raylet", "VLLM_X": "1"}
    assert found.places == {"VLLM_X": ("/env/verl/trainer/constants_ppo.py", 7)}


def test_undetermined_worker_value_keeps_the_local_one() -> None:
    found = job(rows=(worker("HF_HOME", Value(undetermined="not the same in all raylets here")),))
    assert found.get("HF_HOME") == "/home/me/hf"

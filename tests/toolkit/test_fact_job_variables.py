"""What the process that a job starts with will have."""

from __future__ import annotations

from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_job_variables import JobVariables, job_variables
from verl_doctor.toolkit.fact_launch import Launch, Setting
from verl_doctor.toolkit.facts import Unknown

SHELL = Variables({"CUDA_HOME": "/usr/local/cuda", "HF_HOME": "/home/me/hf"}, ("HF_TOKEN",))


def job(*settings: Setting) -> JobVariables:
    found = job_variables.collect(SHELL, Launch((("run.sh", "shell script"),), settings))
    assert isinstance(found, JobVariables)
    return found


def test_without_a_launch_file_it_is_the_shell() -> None:
    found = job_variables.collect(SHELL, Unknown("none"))
    assert found == JobVariables(SHELL.values, {}, ("HF_TOKEN",))
    assert found.has("HF_TOKEN")
    assert not found.has("HF_OTHER")


def test_the_last_line_wins() -> None:
    found = job(Setting("HF_HOME", "/a", "run.sh", 2), Setting("HF_HOME", "/b", "run.sh", 5))
    assert (found.get("HF_HOME"), found.places["HF_HOME"]) == ("/b", ("run.sh", 5))


def test_what_a_file_takes_away_is_gone() -> None:
    found = job(Setting("HF_HOME", None, "run.sh", 2, removed=True))
    assert not found.has("HF_HOME")


def test_a_value_that_cannot_be_told_is_not_the_one_of_the_shell() -> None:
    found = job(Setting("HF_HOME", None, "run.sh", 2))
    assert (found.get("HF_HOME"), found.has("HF_HOME")) == ("", True)


def test_a_value_that_a_file_tells_was_withheld_in_the_shell_only() -> None:
    assert job(Setting("HF_TOKEN", "", "run.sh", 2)).untold == ()

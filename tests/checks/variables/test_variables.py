"""Places that set a variable, and findings about variables without a reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verl_doctor.checks.shared.variables import places, variable_of
from verl_doctor.checks.variables.value_refused import value_refused
from verl_doctor.checks.variables.variable_misspelt import variable_misspelt
from verl_doctor.checks.variables.variable_removed import variable_removed
from verl_doctor.checks.variables.variable_unread import variable_unread
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.unreadable_values import (
    _LEVELS,
    UnreadableValue,
    UnreadableValues,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.collectors.vllm.refusals import VllmRefusals
from verl_doctor.toolkit.commands.explain import documentation
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.rule import Check, Finding, Location
from verl_doctor.toolkit.testing import run_check

RUN = "/home/me/run.sh"
NAME = "VLLM_USE_V1"


def launch(*settings: Setting) -> Launch:
    return Launch(((RUN, "shell script"), ("the command line", "command line")), settings)


def judged(
    check: Check, reading: Reading, variables: Variables, read: Launch, *, warns: bool = False
) -> list[Finding]:
    facts = (
        VariableReaders((reading,), {}, warns),
        variables,
        read,
        (VllmTree, Absent("")),
        (Packages, Absent("")),
    )
    return list(run_check(check, *facts).findings)


def test_all_places_of_a_variable_share_a_finding() -> None:
    read = launch(
        Setting(NAME, "1", RUN, 3), Setting(NAME, "0", RUN, 9), Setting(NAME, "1", "the command line", 1)
    )
    (finding,) = judged(variable_removed, Reading(NAME, "vllm"), Variables({NAME: "1"}), read)
    assert finding.location == Location(RUN, 3)
    assert finding.also == (Location(RUN, 9),)
    assert finding.evidence.found == f"{NAME}=1, {NAME}=0 in the command line and this shell"


def test_variable_set_only_in_the_shell_has_a_fix() -> None:
    (finding,) = judged(variable_removed, Reading(NAME, "vllm"), Variables({NAME: "1"}), launch())
    assert (finding.location, finding.fix) == (None, "variable-removed")
    assert variable_of(finding) == NAME


def test_variable_typed_before_a_command_has_no_fix() -> None:
    typed = launch(Setting(NAME, "1", "the command line", 1))
    (finding,) = judged(variable_removed, Reading(NAME, "vllm"), Variables(), typed)
    assert (finding.location, finding.fix) == (None, None)


def test_variable_unset_in_a_script_is_not_set() -> None:
    assert places(NAME, Variables({NAME: "1"}), launch(Setting(NAME, None, RUN, 3, removed=True))) == []


def test_unknown_or_secret_value_is_hidden() -> None:
    found = places("VLLM_X", Variables(withheld=("VLLM_X",)), launch(Setting("VLLM_X", None, RUN, 3)))
    assert [place.assignment for place in found] == ["VLLM_X=...", "VLLM_X=..."]


def test_long_value_is_truncated() -> None:
    (place,) = places("VLLM_X", Variables({"VLLM_X": "a" * 500}), launch())
    assert len(place.assignment) < 140


def test_vllm_warning_is_reported() -> None:
    (finding,) = judged(variable_removed, Reading(NAME, "vllm"), Variables({NAME: "1"}), launch(), warns=True)
    assert finding.evidence.found.endswith("vLLM warns about it at each start")


@pytest.mark.parametrize(
    ("name", "near", "code"),
    [
        ("VLLM_ATENTION_BACKEND", "VLLM_ATTENTION_BACKEND", "ENV102"),
        ("VLLM_PROT", "VLLM_PORT", "ENV102"),
        ("RAY_worker_register_timeout_second", "RAY_worker_register_timeout_seconds", "ENV102"),
        ("VLLM_LOG_LEVEL", "VLLM_LOGGING_LEVEL", "ENV103"),
        ("NCCL_TIMEOUT", "NCCL_IB_TIMEOUT", "ENV103"),
        ("HF_HUB_READ_TIMEOUT", "HF_HUB_ETAG_TIMEOUT", "ENV103"),
        ("VLLM_USE_V1", "VLLM_USE_V2", "ENV101"),
        ("VLLM_MINE", "", "ENV103"),
    ],
)
def test_each_variable_is_reported_by_one_rule(name: str, near: str, code: str) -> None:
    reading = Reading(name, "vllm", near=near)
    codes = [
        check.code
        for check in (variable_removed, variable_misspelt, variable_unread)
        if judged(check, reading, Variables(), launch(Setting(name, "1", RUN, 3)))
    ]
    assert codes == [code]


def test_name_that_may_be_custom_is_a_hint() -> None:
    read = launch(Setting("VERL_HOME", "/x", RUN, 3))
    (finding,) = judged(variable_unread, Reading("VERL_HOME", "verl"), Variables(), read)
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("shell", "settings", "place"),
    [
        ("error", (), "this shell"),
        ("error", (Setting("PYTHONWARNINGS", "ignore", RUN, 3),), ""),
        ("ignore", (Setting("PYTHONWARNINGS", "error", RUN, 3),), RUN),
        ("", (Setting("PYTHONWARNINGS", "error", "the command line", 1),), "the command line"),
        ("", (Setting("PYTHONWARNINGS", "error", RUN, 3), Setting("PYTHONWARNINGS", "ignore", RUN, 4)), ""),
        ("", (Setting("PYTHONWARNINGS", "error", RUN, 3), Setting("PYTHONWARNINGS", None, RUN, 4, removed=True)), ""),
        ("", (Setting("PYTHONWARNINGS", "error", RUN, 3, conditional=True),), ""),
    ],
)  # fmt: skip
def test_last_certain_setting_decides_whether_warnings_are_raised(
    shell: str, settings: tuple[Setting, ...], place: str
) -> None:
    variables = Variables({"PYTHONWARNINGS": shell} if shell else {})
    absent = [(fact, Absent("")) for fact in (VllmRefusals, UnreadableValues, Packages, Configuration)]
    found = list(run_check(value_refused, variables, launch(*settings), *absent).findings)
    where = [finding.location.path if finding.location else str(finding.evidence.found) for finding in found]
    assert len(where) == bool(place)
    assert all(place in each for each in where)


def test_remedy_names_the_values_that_the_program_accepts() -> None:
    """So does the page of the rule, for logging levels."""
    levels = "DEBUG, INFO or ERROR"
    value = UnreadableValue("VERL_LOGGING_LEVEL", "verl", "x.py", "ValueError: no", "import", levels)
    absent = [(fact, Absent("")) for fact in (VllmRefusals, Packages, Configuration)]
    given = Variables({"VERL_LOGGING_LEVEL": "verbose"})
    for each, step in (
        (value, f"set VERL_LOGGING_LEVEL to {levels}"),
        (replace(value, accepted=""), "use a value"),
    ):
        (finding,) = run_check(value_refused, given, launch(), UnreadableValues((each,)), *absent).findings
        assert finding.remedy.startswith(step)
    page = documentation.explain(value_refused, registry.load())
    how = page.partition("## How to fix")[2].partition("## In short")[0]
    assert [level for level in sorted(_LEVELS - {"NOTSET"}) if f"`{level}`" not in how] == []

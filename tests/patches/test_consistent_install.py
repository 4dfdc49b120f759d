"""The one command, and when there is none."""

from __future__ import annotations

from verl_doctor.patches.consistent_install import consistent_install
from verl_doctor.toolkit.change import Refusal, RunCommand, safety_of
from verl_doctor.toolkit.fact_resolution import Resolution
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


def test_it_cannot_be_undone_so_it_is_unsafe() -> None:
    change = only(Resolution(COMMAND, KEEPS, "resolved", ("a 1 -> 2",)))
    assert safety_of("safe", [change]) == "unsafe"


def test_without_an_answer_the_command_is_shown_and_says_so() -> None:
    change = only(Resolution(COMMAND, KEEPS, "unanswered", reason="no answer within 60 s"))
    assert "not tried as a dry run: no answer within 60 s" in change.why


def test_what_cannot_agree_is_refused_with_the_resolvers_reason() -> None:
    plan = consistent_install.plan(
        FINDING, Resolution(COMMAND, KEEPS, "unsatisfiable", reason="Because a needs b")
    )
    assert plan == Refusal("no versions agree with verl==0.9.1, torch==2.11.0: Because a needs b")


def test_a_command_that_would_change_nothing_is_refused() -> None:
    assert isinstance(consistent_install.plan(FINDING, Resolution(COMMAND, KEEPS, "resolved")), Refusal)


def test_a_long_list_of_changes_is_cut() -> None:
    changes = tuple(f"package{number} 1 -> 2" for number in range(80))
    assert only(Resolution(COMMAND, KEEPS, "resolved", changes)).why.endswith("and 68 more")

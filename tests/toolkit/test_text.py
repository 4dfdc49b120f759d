"""Short forms of texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verl_doctor.checks.configuration import config_value_of_wrong_type
from verl_doctor.checks.shared.effective import value_text
from verl_doctor.toolkit.collectors.model import config_entries
from verl_doctor.toolkit.collectors.packages import installer_errors
from verl_doctor.toolkit.collectors.variables.effective_environment import Value
from verl_doctor.toolkit.text import appended, closest, commands_kept_whole, ranges, without_middle, wrapped


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 0], "0, 1"),
        ([0, 1, 2], "0-2"),
        (range(8), "0-7"),
        ([0, 2, 3, 4, 9, 10, 12], "0, 2-4, 9, 10, 12"),
        ([5, 5, 5], "5"),
    ],
)
def test_consecutive_numbers_are_shown_as_ranges(numbers: list[int], expected: str) -> None:
    assert ranges(numbers) == expected


@pytest.mark.parametrize(("words", "expected"), [("12345678", "12345678"), ("123456789", "123..789")])
def test_text_that_is_too_long_keeps_its_ends(words: str, expected: str) -> None:
    assert without_middle(words, 8) == expected


@pytest.mark.parametrize(
    "shown",
    [
        lambda text: value_text(Value(text)),
        config_value_of_wrong_type._plain,
        config_entries._shown,
        installer_errors._one_line,
    ],
)
def test_long_values_and_reasons_in_sentences_keep_their_ends(shown: Callable[[str], str]) -> None:
    text = shown(f"begins{'-' * 900}ends")
    assert len(text) <= 400
    assert text.strip("'").startswith("begins")
    assert text.strip("'").endswith("ends")


@pytest.mark.parametrize(
    ("sentence", "commands"),
    [
        (
            "Name it: verl-doctor check --python PATH/TO/bin/python, or leave it",
            ["verl-doctor check --python PATH/TO/bin/python"],
        ),
        ("verl-doctor undo takes it back", ["verl-doctor undo"]),
        ("run `pip install -U x` and then go on", ["`pip install -U x`"]),
        ("pip install 'vllm==0.11.0' repairs it", ["pip install 'vllm==0.11.0'"]),
        ("use uv pip install -e . here", ["uv pip install -e"]),
        ("verl-doctor smoke --up-to 2 shows it", ["verl-doctor smoke --up-to 2"]),
        ("set it with export NCCL_DEBUG=INFO before ray start", ["export NCCL_DEBUG=INFO", "ray start"]),
        ("the source of Ray is ray itself", []),
    ],
)
def test_command_in_a_sentence_is_never_broken(sentence: str, commands: list[str]) -> None:
    kept = [word.replace("\x00", " ") for word in commands_kept_whole(sentence).split(" ") if "\x00" in word]
    assert [word.rstrip(",") for word in kept if word.rstrip(",") in commands] == commands
    for width in range(20, 81, 5):
        lines = wrapped(sentence, width)
        assert " ".join(lines) == sentence
        assert all(any(command in line for line in lines) for command in commands)


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("async", ["sync", "colocate_async", "separate_async"], ""),
        ("async", ["sync", "separate_async"], "separate_async"),
        ("Async", ["sync", "separate-async"], "separate-async"),
        ("asinc", ["sync", "async"], "async"),
        ("nothing", ["sync", "async"], ""),
    ],
)
def test_names_with_the_wrong_one_as_a_part_come_before_similar_ones(
    name: str, names: list[str], meant: str
) -> None:
    assert closest(name, names) == meant


def test_words_for_the_end_of_a_command_are_quoted_each_after_a_blank() -> None:
    assert appended(["--verl", "/my verl"]) == " --verl '/my verl'"
    assert appended([]) == ""

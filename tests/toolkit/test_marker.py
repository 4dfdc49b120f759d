"""Markers: ours, foreign ones, and the comments that are neither."""

from __future__ import annotations

from verl_doctor.toolkit.marker import Marker, foreign_words, marked_lines

OURS = Marker()
PATCHED = """\
engine = build(
    # disable_log_requests=args.disable_log_requests,  # Uky
    enable_log_requests=args.enable_log_requests,  # Uky
    seed=0,  # optional
)
x = 1  # verl-doctor: VLLM101
y = 2  # noqa
"""


def test_our_marker_is_found_by_word_and_code() -> None:
    assert OURS.comment("VLLM101") == "# verl-doctor: VLLM101"
    assert OURS.codes(PATCHED) == ("VLLM101",)
    assert Marker("ops").codes(PATCHED) == ()


def test_a_word_is_a_marker_when_a_replaced_line_is_kept_under_it() -> None:
    assert foreign_words(PATCHED, OURS) == {"Uky"}


def test_every_line_with_the_word_is_listed_and_no_other() -> None:
    found = [(line, word) for line, word, _ in marked_lines(PATCHED, OURS, {"Uky"})]
    assert found == [(2, "Uky"), (3, "Uky"), (6, "verl-doctor: VLLM101")]


def test_prose_and_tool_comments_are_no_markers() -> None:
    assert (
        foreign_words("# see the docs for more # details\n#: x # noqa\n# f(x) # type\nz = 1  # mean\n", OURS)
        == frozenset()
    )

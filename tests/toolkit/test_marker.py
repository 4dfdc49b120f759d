"""Markers: ours, foreign ones, and the comments that are neither."""

from __future__ import annotations

import pytest

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


def test_word_on_a_kept_original_line_is_a_marker() -> None:
    assert foreign_words(PATCHED, OURS) == {"Uky"}


def test_every_line_with_the_word_is_listed() -> None:
    found = [(line, word) for line, word, _ in marked_lines(PATCHED, OURS, {"Uky"})]
    assert found == [(2, "Uky"), (3, "Uky"), (6, "verl-doctor: VLLM101")]


def test_prose_and_tool_comments_are_not_markers() -> None:
    assert (
        foreign_words("# see the docs for more # details\n#: x # noqa\n# f(x) # type\nz = 1  # mean\n", OURS)
        == frozenset()
    )


# Shapes of comments in released versions of verl and vLLM.
RELEASED = [
    """\
    config.hidden_size = 1280  # hidden_size
    # config.gated_linear_unit = False # no gated
    # config.activation_func = quick_gelu # hidden_act
    config.kv_channels = config.hidden_size // 16
""",
    """\
        num_tokens = a1.size(0)  # M
"""
    + "        call()\n" * 200
    + """\
        # num_tokens = output.size(0)  # M
        # M dimension
""",
    """\
    # (4096, 256)  # DSV4-Flash
    # (6144, 256)  # GLM5.2
    (7168, 384): 1,
""",
    """\
    # "UCX_IB_GID_INDEX": "3", # NCCL_IB_GID_INDEX
    "UCX_TLS": "rc",
""",
    """\
# num_tokens = output.size(0)  # M
num_tokens = a1.size(0)  # M
M = num_tokens
""",
]


@pytest.mark.parametrize("text", RELEASED)
def test_comments_in_released_sources_are_not_markers(text: str) -> None:
    assert foreign_words(text, OURS) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "# a = f(1) # Uky\na = f(2) # Uky\n",
        "a = f(2)  # Uky\n# a = f(1)  # Uky\n",
        "# a = f(1)  # Uky\na = f(2)  # Uky\nprint('Uky was here')  # Uky\n",
        "# a = f(  # Uky\n#     1,\n# )\na = f(2)  # Uky\n",
        "#a = f(1)  #Uky\na = f(2)  #Uky\n# Uky: see the ticket\n",
    ],
)
def test_kept_line_with_its_replacement_defines_a_marker(text: str) -> None:
    assert foreign_words(text, OURS) == {"Uky"}


@pytest.mark.parametrize(
    "kept", ["import json", "from a import b", "return x", "raise error", "pass", "x = 1"]
)
def test_kept_statement_needs_no_punctuation(kept: str) -> None:
    assert foreign_words(f"# {kept}  # Uky\nimport ujson  # Uky\n", OURS) == {"Uky"}
    assert foreign_words(f"# {kept}  # Uky\nimport ujson\n", OURS) == frozenset()

"""Line patches: extracted from scripts, YAML, TOML and Python, and applied to another text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_doctor.toolkit.marker import Marker, foreign_words, marked_lines
from verl_doctor.toolkit.patchsets.line_patch import (
    LinePatch,
    NoLinePatch,
    Place,
    applied,
    line_patches,
    place_of,
)


def found(text: str, *words: str) -> list[LinePatch | NoLinePatch]:
    marker = Marker()
    known = {*words, *foreign_words(text, marker)}
    marked = {number: word for number, word, _ in marked_lines(text, marker, known)}
    return list(line_patches("run.sh", "checkout", text.splitlines(), marked))


def only(text: str, *words: str) -> LinePatch:
    (patch,) = found(text, *words)
    assert isinstance(patch, LinePatch), patch
    return patch


def brought(patch: LinePatch, text: str) -> str:
    lines = text.splitlines()
    place = place_of(patch, lines)
    assert isinstance(place, Place), place
    return "".join(f"{line}\n" for line in applied(patch, place, lines))


# A patched text, the same text without the patch, and the markers that must be named.
PATCHED = {
    "at the end": ("a: 1\n# b: auto  # Uky\nb: safetensors  # Uky\nc: 3\n", "a: 1\nb: auto\nc: 3\n", ()),
    "at the start": ("a=1\n# Uky: b=2\nb=3  # Uky\nc=3\n", "a=1\nb=2\nc=3\n", ()),
    "at the start, new line unmarked": ("a=1\n# Uky: b=2\nb=3\nc=3\n", "a=1\nb=2\nc=3\n", ("Uky",)),
    "in the middle": (
        "a=1\n# b=2  # changed by Uky, was slow\nb=3  # by Uky on Monday\nc=3\n",
        "a=1\nb=2\nc=3\n",
        ("Uky",),
    ),
    "a block": (
        "x:\n  a: 1\n  # Uky begin\n  # b: 2\n  b: 3\n  d: 4\n  # Uky end\n  c: 3\n",
        "x:\n  a: 1\n  b: 2\n  c: 3\n",
        (),
    ),
    "a block that only adds": ("a=1\n# --- OPS BEGIN ---\n\nb=3\n# --- OPS END ---\nc=3\n", "a=1\nc=3\n", ()),
    "a line that was added": ("a=1\nexport B=1  # team-x\nc=3\n", "a=1\nc=3\n", ("team-x",)),
    "the first line": ("import os  # Uky\nimport sys\n", "import sys\n", ("Uky",)),
    "the last line": ("a=1\nb=2  # Uky\n", "a=1\n", ("Uky",)),
    "a list": ("x:\n  # Uky: - auto\n  - flash  # Uky\n", "x:\n  - auto\n", ("Uky",)),
}


@pytest.mark.parametrize("shape", PATCHED)
def test_line_patch_reproduces_the_patched_text(shape: str) -> None:
    patched, before, words = PATCHED[shape]
    patch = only(patched, *words)
    assert brought(patch, before) == patched


@pytest.mark.parametrize("shape", PATCHED)
def test_line_patch_keeps_indentation_and_blank_lines(shape: str) -> None:
    patched, before, words = PATCHED[shape]
    other = "".join(f"    {line}\n\n" for line in before.splitlines())
    after = brought(only(patched, *words), other)
    assert [line.strip() for line in after.splitlines() if line.strip()] == [
        line.strip() for line in patched.splitlines() if line.strip()
    ]
    new = [line for line in after.splitlines() if "3" in line or "Uky" in line]
    assert all(line.startswith("    ") for line in new)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("a: 1\nb: dummy\nc: 3\n", "the lines that it replaces are missing"),
        ("b: auto\nx: 1\nb: auto\n", "it fits in 2 places, in lines 1, 3"),
    ],
)
def test_line_patch_is_refused_for_other_lines(other: str, reason: str) -> None:
    assert place_of(only(PATCHED["at the end"][0]), other.splitlines()) == reason


def test_addition_is_refused_if_its_place_is_occupied() -> None:
    patch = only("a=1\nb=3  # Uky\nc=3\n", "Uky")
    assert place_of(patch, ["a=1", "b=2", "c=3"]) == "the lines around it are not adjacent"


def test_only_place_with_the_same_context_is_used() -> None:
    patch = only("one:\n# b: auto  # Uky\nb: flash  # Uky\ntwo:\n")
    assert brought(patch, "zero:\nb: auto\none:\nb: auto\ntwo:\n").splitlines()[3:5] == [
        "# b: auto  # Uky",
        "b: flash  # Uky",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=1\n# Uky: ask before you change this\n\nb=2\n", "no line of code is marked"),
        ("a=1\nexport HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789  # Uky\n", "held a secret"),
    ],
)
def test_unsupported_edit_has_a_reason(text: str, reason: str) -> None:
    (left,) = found(text, "Uky")
    assert isinstance(left, NoLinePatch)
    assert reason in left.reason


LINES = st.lists(st.sampled_from(["a=1", "b: 2", "c", "- d"]), min_size=1, max_size=8)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(LINES, LINES, st.integers(0, 8))
def test_addition_is_reproduced_or_refused(before: list[str], new: list[str], at: int) -> None:
    at = min(at, len(before))
    added = [*before[:at], *(f"{line}  # Uky" for line in new), *before[at:]]
    patch = only("\n".join(added), "Uky")
    place = place_of(patch, before)
    if isinstance(place, Place):
        assert applied(patch, place, before) == added
    else:
        assert place.startswith("it fits in ")

"""Output of every command, on one page. `cd tests && python -m support.golden` regenerates it."""

from __future__ import annotations

import difflib
import re

import pytest
from support import golden


@pytest.fixture(scope="module")
def page() -> str:
    return golden.page()


def test_page_is_unchanged(page: str) -> None:
    kept = golden.PAGE.read_text("utf-8")
    changed = difflib.unified_diff(kept.splitlines(), page.splitlines(), "kept", "now", lineterm="", n=1)
    assert page == kept, "\n".join(
        ["read the difference, then: cd tests && python -m support.golden", *changed]
    )


def test_every_listed_command_is_on_the_page(page: str) -> None:
    shown = set(re.findall(r"^\$ verl-doctor ([a-z]+)", page, re.MULTILINE))
    assert set(golden.listed()) <= shown


def test_commands_to_copy_have_separate_lines(page: str) -> None:
    lines = page.splitlines()
    steps = [number for number, line in enumerate(lines) if line == "Next:"]
    assert steps
    for number in steps:
        shown = lines[number + 1 : lines.index("", number)]
        commands = [line for line in shown if line.startswith("  verl-doctor ")]
        assert commands
        assert not any(" # " in line for line in commands)


def test_verdict_is_visible_on_a_terminal_of_24_lines(page: str) -> None:
    """Output longer than the terminal repeats the verdict at its end."""
    for part in page.split("\n$ verl-doctor ")[1:]:
        head, *shown = [line for line in part.splitlines() if not line.startswith("! ")]
        if "80x24" in head and "help" not in head and len(shown) > 24:
            first, last = shown[0], [line for line in shown if line][-1]
            verdicts = ("WILL FAIL", "NO FAULT FOUND", "NOT CHECKED")
            assert last[:9] == first[:9] or any(word in "\n".join(shown[-4:]) for word in verdicts), head

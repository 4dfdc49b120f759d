"""Steps below "Next:" can be pasted into a shell."""

from __future__ import annotations

from verl_doctor.toolkit.console.lines import next_steps


def test_each_line_of_a_comment_is_marked_and_a_command_is_never_wrapped() -> None:
    long = "verl-doctor fix " + "run.sh " * 20
    text = [line.plain for line in next_steps([("", "run.sh:24: " + "word " * 40), (long, "")], 80)]
    assert text[:2] == ["", "Next:"]
    assert len(text) > 5
    assert all(line.startswith("  # ") and len(line) <= 80 for line in text[2:-1])
    assert text[-1] == f"  {long}"

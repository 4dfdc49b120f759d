"""State of a step from its judgements, and rendering of the list."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

import pytest
from support.schemas import validate

from verl_doctor.toolkit.commands.checklist import checklist
from verl_doctor.toolkit.commands.checklist.checklist import (
    Checklist,
    Judgement,
    State,
    Step,
    document,
    markdown_lines,
    step,
    text_lines,
)
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.comparison.meaning import ByHand
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.target import Target

TARGET = {
    "python": "/env/bin/python",
    "chosen_by": "--python",
    "passed_over": "",
    "arguments": [],
    "python_version": "",
    "verl": None,
    "vllm": None,
    "libraries": {},
}
REPORT = Report(TARGET, ())
STEPS = (
    Step("tree", "The tree is whole", "done", ("12 files compared",)),
    Step("patches", "The patches are there", "failed", ("Uky a.py:3: lost `x` | y",), "verl-doctor patches apply OLD.json --apply"),
    Step("quick", "The quick test", "open", ("a sentence that goes on and on " * 8,), "type this " * 20),
    Step("debug", "A DEBUG run", "unknown", ("\x1b[31mred",), "echo `x`"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("done", "done"), "done"),
        (("done", None), "done"),
        (("done", "unknown"), "unknown"),
        (("unknown", "open"), "open"),
        (("open", "failed", "done"), "failed"),
        ((None,), "unknown"),
        ((), "unknown"),
    ],
)
def test_worst_judgement_determines_the_step(states: tuple[State | None, ...], state: State) -> None:
    judgements = [Judgement(state, (f"said {state}",), f"do {state}") for state in states]
    found = step("key", "title", judgements)
    assert found.state == state
    assert found.evidence
    if state in states:
        assert found.evidence[0] == f"said {state}"
        assert found.do == ("" if state == "done" else f"do {state}")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("done", "done"), 0),
        (("done", "open"), 1),
        (("done", "unknown"), 3),
        (("unknown", "failed"), 1),
        (("unknown", "open"), 1),
        ((), 3),
    ],
)
def test_worst_step_determines_the_exit_code(states: tuple[State, ...], code: int) -> None:
    assert checklist.exit_code([Step("x", "x", state) for state in states]) == code


@pytest.mark.parametrize(("state", "code"), [("failed", 1), ("open", 3), ("done", 3)])
def test_only_a_failed_step_outranks_a_missing_verl(state: State, code: int) -> None:
    assert checklist.exit_code([Step("x", "x", state)], "no verl was found") == code


def test_every_rule_named_by_a_step_exists() -> None:
    text = (importlib.resources.files("verl_doctor.checks") / "data/migration_steps.toml").read_text("utf-8")
    entries = toml.loads(text)["step"]
    named = {code for entry in entries for key in ("judged_by", "on_nodes") for code in entry.get(key, ())}
    assert named <= {check.code for check in registry.load().checks}


def test_terminal_lines_fit_and_escapes_are_neutralised() -> None:
    lines = [line.plain for line in text_lines(Checklist(STEPS, REPORT, "OLD.json"), 80)]
    assert max(len(line) for line in lines if not line.startswith("    -> ")) <= 80
    assert "\x1b" not in "".join(lines)
    assert lines[0] == "1 of 4 steps done, compared with OLD.json"
    assert lines[1] == "NOT CHECKED  nothing was checked: no rule ran"
    assert "[x] 1. The tree is whole: done" in lines


def test_command_is_on_a_line_of_its_own_and_never_wrapped() -> None:
    lines = [line.plain for line in text_lines(Checklist(STEPS, REPORT), 80)]
    assert [line for line in lines if "->" in line] == [f"    -> {step.do}" for step in STEPS if step.do]


def test_remedy_in_words_is_wrapped() -> None:
    remedy = ByHand("/jobs/run.sh:9: " + "write the name of the folder " * 6)
    lines = [
        line.plain for line in text_lines(Checklist([Step("job", "t", "failed", ("e",), remedy)], REPORT), 80)
    ]
    at = next(number for number, line in enumerate(lines) if "->" in line)
    assert max(map(len, lines[at:])) <= 80
    assert " ".join(line.strip() for line in lines[at:]) == f"-> {remedy.strip()}"


def test_command_that_needs_the_old_cluster_is_about_the_named_target() -> None:
    target = Target(Path("/env/bin/python"), "--python", vllm=Path("/src/vllm"))
    command, _, comment = checklist.Invocation(target).with_snapshot().partition("  # ")
    named = "--python /env/bin/python --tree vllm=/src/vllm"
    assert command == f"verl-doctor checklist --from OLD.json {named}"
    assert comment == "OLD.json: verl-doctor snapshot OLD.json, on the old cluster"


def test_markdown_uses_checkboxes() -> None:
    text = "\n".join(markdown_lines(Checklist(STEPS, REPORT)))
    assert text.count("- [x] ") == 1
    assert text.count("- [ ] ") == 3
    assert "`verl-doctor patches apply OLD.json --apply`" in text
    assert "`` echo `x` ``" in text
    assert "\x1b" not in text


def test_document_matches_its_schema() -> None:
    found = json.loads(json.dumps(document(Checklist(STEPS, REPORT))))
    validate(found, schema_text("checklist"))
    assert found["verdict"] == "failed"
    assert found["check"]["verdict"] == "could_not_check"
    assert found["summary"] == {"done": 1, "failed": 1, "open": 1, "unknown": 1}

"""The migration checklist as text, as Markdown for a ticket, and as a JSON document. `data/checklist.schema.json` describes that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.checklist import STATES, State, Step, verdict
from verl_doctor.toolkit.markdown_text import code, escaped
from verl_doctor.toolkit.text import counted, harmless, wrapped

SCHEMA_VERSION = 1
_MARKS: Mapping[State, str] = {"done": "x", "failed": "!", "open": " ", "unknown": "?"}
_WORDS: Mapping[State, str] = {"done": "done", "failed": "FAILED", "open": "open", "unknown": "not known"}
_STYLES: Mapping[State, str] = {"done": "green", "failed": "bold red", "open": "yellow", "unknown": "yellow"}
_BLANK = " " * 4


@dataclass(frozen=True)
class Checklist:
    """The steps, what was examined, and the old cluster's snapshot in words, "" for none."""

    steps: Sequence[Step]
    target: Mapping[str, Any]
    old: str = ""


def headline(these: Checklist) -> str:
    """How far the move has come."""
    finished = sum(one.state == "done" for one in these.steps)
    since = f", compared with {these.old}" if these.old else ", without an old cluster to compare with"
    return f"{finished} of {counted(len(these.steps), 'step')} done{since}"


def text_lines(these: Checklist, width: int | None) -> Iterator[Text]:
    """The list for a person: each step with its evidence, and the command that does what is left."""
    yield Text(harmless(headline(these)), style="bold")
    for number, one in enumerate(these.steps, 1):
        yield Text()
        yield Text(
            f"[{_MARKS[one.state]}] {number}. {harmless(one.title)}: {_WORDS[one.state]}",
            style=_STYLES[one.state],
        )
        for sentence in one.evidence:
            for line in wrapped(harmless(sentence), width, indent=_BLANK, hanging=f"{_BLANK}  "):
                yield Text(line)
        if one.do:
            for line in wrapped(harmless(one.do), width, indent=f"{_BLANK}-> ", hanging=f"{_BLANK}   "):
                yield Text(line, style="bold")


def markdown_lines(these: Checklist) -> Iterator[str]:
    """The list for a ticket, in which a box is ticked when the step is done."""
    yield escaped(headline(these)) + "\n"
    for one in these.steps:
        box = "x" if one.state == "done" else " "
        yield f"- [{box}] {escaped(one.title)}: **{_WORDS[one.state]}**"
        for sentence in one.evidence:
            yield f"  - {escaped(sentence)}"
        if one.do:
            yield f"  - next: {code(one.do)}"


def document(these: Checklist) -> dict[str, Any]:
    """Everything, in JSON types."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict(these.steps),
        "target": dict(these.target),
        "from": these.old,
        "steps": [{**asdict(one), "evidence": list(one.evidence)} for one in these.steps],
        "summary": {state: sum(one.state == state for one in these.steps) for state in STATES},
    }

"""The migration checklist: its steps and their overall state. `checklist.steps` computes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypedDict, get_args

from rich.text import Text

from verl_doctor.toolkit import verdict as verdicts
from verl_doctor.toolkit.comparison.meaning import ByHand
from verl_doctor.toolkit.console.markdown_text import code, escaped
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.json_document import Count, Keyword, plain
from verl_doctor.toolkit.render import result_words
from verl_doctor.toolkit.render.document import PathDocument, TargetDocument, path_document
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.text import counted, harmless, wrapped

State = Literal["done", "failed", "open", "unknown"]
Verdict = Literal["done", "failed", "open", "could_not_check"]

NAMED = 12
"""How many files, patches or differences a step names; the rest are counted."""

STATES: tuple[State, ...] = get_args(State)
_WORST: tuple[State, ...] = ("failed", "open", "unknown", "done")
_VERDICTS: Mapping[State, Verdict] = {
    "failed": "failed",
    "open": "open",
    "unknown": "could_not_check",
    "done": "done",
}
_CODES: Mapping[Verdict, ExitCode] = {
    "done": ExitCode.OK,
    "failed": ExitCode.FAILED,
    "open": ExitCode.FAILED,
    "could_not_check": ExitCode.COULD_NOT_CHECK,
}


@dataclass(frozen=True)
class Invocation:
    """This run of `checklist`, for commands that repeat it.

    `old` is the snapshot of the old cluster, `log` the DEBUG run's log, "" for none, and `nodes` are the
    options that name other nodes.
    """

    target: Target
    old: str = ""
    nodes: tuple[str, ...] = ()
    log: str = ""

    def again(self, *more: str) -> str:
        """Return the command for the same run with more options."""
        old = ("--from", self.old) if self.old else ()
        log = ("--log", self.log) if self.log else ()
        return shlex.join(
            ("verl-doctor", "checklist", *old, *self.nodes, *log, *more, *self.target.arguments)
        )

    def with_snapshot(self) -> str:
        """Return the next command when only the old cluster can provide the data."""
        command = replace(self, old="OLD.json").again()
        return f"{command}  # OLD.json: verl-doctor snapshot OLD.json, on the old cluster"


@dataclass(frozen=True)
class Judgement:
    """One judgement of a step: a state, its evidence in sentences, and the command or words for what is left.

    A state of None gives evidence without judging.
    """

    state: State | None
    evidence: tuple[str, ...] = ()
    do: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the move. `key` is its name for programs; `do` is empty if nothing is left to do."""

    key: str
    title: str
    state: State
    evidence: tuple[str, ...] = ()
    do: str = ""


def step(key: str, title: str, statements: Iterable[Judgement]) -> Step:
    """Combine judgements into a step: the worst counts and comes first; without any the state is unknown."""
    judgements = sorted(statements, key=lambda statement: _WORST.index(statement.state or "done"))
    state: State = next((judgement.state for judgement in judgements if judgement.state), "unknown")
    evidence = tuple(dict.fromkeys(sentence for judgement in judgements for sentence in judgement.evidence))
    do = (
        ""
        if state == "done"
        else next((judgement.do for judgement in judgements if judgement.state == state and judgement.do), "")
    )
    return Step(key, title, state, evidence or ("no evidence here",), do)


def verdict(steps: Sequence[Step], unexamined: str = "") -> Verdict:
    """Return the overall state.

    Without verl (`unexamined` gives the reason), no other step than a failed one shows how far a job gets.
    """
    states: tuple[State, ...] = tuple(step.state for step in steps) or ("unknown",)
    worst = min(states, key=_WORST.index)
    return "could_not_check" if unexamined and worst != "failed" else _VERDICTS[worst]


def exit_code(steps: Sequence[Step], unexamined: str = "") -> ExitCode:
    """Return 0 if all are done, 1 if one failed or is open, 3 if one could not be judged."""
    return _CODES[verdict(steps, unexamined)]


_MARKS: Mapping[State, str] = {"done": "x", "failed": "!", "open": " ", "unknown": "?"}
_WORDS: Mapping[State, str] = {"done": "done", "failed": "FAILED", "open": "to do", "unknown": "not known"}
_STYLES: Mapping[State, str] = {"done": "green", "failed": "bold red", "open": "yellow", "unknown": "yellow"}
_BLANK = " " * 4


@dataclass(frozen=True)
class Checklist:
    """The steps, findings of `check` here, and a description of the old cluster's snapshot, "" for none."""

    steps: Sequence[Step]
    report: Report
    old: str = ""


def headline(these: Checklist) -> str:
    """Return how far the move has come."""
    finished = sum(step.state == "done" for step in these.steps)
    since = (
        f", compared with {these.old}"
        if these.old
        else "; no snapshot of an old cluster to compare with (--from)"
    )
    return f"{finished} of {counted(len(these.steps), 'step')} done{since}"


def text_lines(these: Checklist, width: int | None) -> Iterator[Text]:
    """Yield the list as text: each step with its evidence, and the command for what is left."""
    yield Text(harmless(headline(these)), style="bold")
    for line in wrapped(harmless("  ".join(result_words.headline(these.report))), width, hanging="  "):
        yield Text(line)
    for number, step in enumerate(these.steps, 1):
        yield Text()
        yield Text(
            f"[{_MARKS[step.state]}] {number}. {harmless(step.title)}: {_WORDS[step.state]}",
            style=_STYLES[step.state],
        )
        for sentence in step.evidence:
            for line in wrapped(harmless(sentence), width, indent=_BLANK, hanging=f"{_BLANK}  "):
                yield Text(line)
        if step.do:
            columns = width if isinstance(step.do, ByHand) else None  # a command is never wrapped
            do = wrapped(harmless(step.do), columns, indent=f"{_BLANK}-> ", hanging=f"{_BLANK}   ")
            yield from (Text(line, style="bold") for line in do)


def markdown_lines(these: Checklist) -> Iterator[str]:
    """Yield the list for a ticket, as a task list."""
    yield escaped(headline(these)) + "\n"
    yield escaped("  ".join(result_words.headline(these.report))) + "\n"
    for step in these.steps:
        box = "x" if step.state == "done" else " "
        yield f"- [{box}] {escaped(step.title)}: **{_WORDS[step.state]}**"
        for sentence in step.evidence:
            yield f"  - {escaped(sentence)}"
        if step.do:
            yield f"  - next: {code(step.do)}"


class CheckDocument(TypedDict):
    """What verl-doctor check reports here."""

    verdict: verdicts.Verdict
    paths: Annotated[list[PathDocument], Keyword("minItems", 1)]


class StepDocument(TypedDict):
    """A step of the move."""

    key: Annotated[str, Keyword("pattern", "^[a-z]+$")]
    title: Annotated[str, Keyword("minLength", 1)]
    state: State
    evidence: Annotated[list[str], Keyword("minItems", 1)]
    do: Annotated[str, "the next command, or what to do by hand; empty if the step is done"]


_From = TypedDict(
    "_From", {"from": Annotated[str, "the snapshot of the old cluster, as text; empty for none"]}
)


class ChecklistDocument(_From):
    """The progress of a move to a new cluster."""

    schema_version: Literal[1]
    verdict: Verdict
    target: TargetDocument
    check: CheckDocument
    steps: Annotated[list[StepDocument], Keyword("minItems", 1)]
    summary: Annotated[dict[str, Count], "the number of steps in each state"]


def document(these: Checklist) -> ChecklistDocument:
    """Return everything in JSON types."""
    return {
        "schema_version": 1,
        "verdict": verdict(these.steps, these.report.unexamined),
        "target": plain(these.report.target),
        "check": {
            "verdict": these.report.verdict,
            "paths": [path_document(path) for path in these.report.paths],
        },
        "from": these.old,
        "steps": plain(these.steps),
        "summary": {state: sum(step.state == state for step in these.steps) for state in STATES},
    }

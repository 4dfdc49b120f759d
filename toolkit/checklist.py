"""The migration checklist: what a step is, and what the states of all of them come to. `checklist_steps` computes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

State = Literal["done", "failed", "open", "unknown"]
Verdict = Literal["done", "failed", "open", "could_not_check"]

WITHOUT = (
    "on the old cluster: verl-doctor snapshot OLD.json; then here: verl-doctor checklist --from OLD.json"
)
"""What comes next where only the old cluster can tell."""

NAMED = 12
"""Files, patches or differences that a step names; the rest is counted."""

STATES: tuple[State, ...] = get_args(State)
_WORST: tuple[State, ...] = ("failed", "open", "unknown", "done")
_VERDICTS: Mapping[State, Verdict] = {
    "failed": "failed",
    "open": "open",
    "unknown": "could_not_check",
    "done": "done",
}
_CODES: Mapping[Verdict, int] = {"done": 0, "failed": 1, "open": 1, "could_not_check": 3}


@dataclass(frozen=True)
class Said:
    """What one witness says of a step: a state, the evidence for it in sentences, and the command that does what is left.

    A state of None says something without judging.
    """

    state: State | None
    evidence: tuple[str, ...] = ()
    do: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the move. `key` is its name for programs; `do` is empty when nothing is left to do."""

    key: str
    title: str
    state: State
    evidence: tuple[str, ...] = ()
    do: str = ""


def step(key: str, title: str, said: Iterable[Said]) -> Step:
    """A step as its witnesses say: the worst counts, and is heard first. Nobody's word leaves it unknown."""
    witnesses = sorted(said, key=lambda one: _WORST.index(one.state or "done"))
    state: State = next((one.state for one in witnesses if one.state), "unknown")
    evidence = tuple(dict.fromkeys(sentence for one in witnesses for sentence in one.evidence))
    do = "" if state == "done" else next((one.do for one in witnesses if one.state == state and one.do), "")
    return Step(key, title, state, evidence or ("nothing here tells",), do)


def verdict(steps: Sequence[Step]) -> Verdict:
    """What all steps come to."""
    return _VERDICTS[min((one.state for one in steps), key=_WORST.index, default="unknown")]


def exit_code(steps: Sequence[Step]) -> int:
    """0 all are done, 1 one failed or is open, 3 one could not be judged."""
    return _CODES[verdict(steps)]

"""Whether one step moved the weights, and whether the rollout got them, told from what a witness in the processes wrote down.

Training's own words (`actor/grad_norm`) are kept beside it: they are what a person reads in a real run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_METRIC = re.compile(r"\bstep:\d+ - (.*)")
_NUMBER = re.compile(r"([\w/.()-]+):(?:np\.\w+\()?(-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan))\)?(?= - |\s*$)")


@dataclass(frozen=True)
class Weights:
    """`tensors` an optimizer had before and after its steps, of which `moved` differ.

    `visible` are those that differ in bfloat16 too, in which a rollout has them; of these `arrived` in the rollout, bit for bit. None:
    the rollout told nothing after the step. A tensor that vLLM joins with others (query, key and value) arrives unseen.
    """

    tensors: int
    moved: int
    visible: int
    arrived: int | None


def weights(told: Sequence[Mapping[str, Any]]) -> Weights | None:
    """Put the witness's words together. None when no optimizer took a step."""
    before = next((event for event in told if event.get("event") == "before update"), None)
    after = next((event for event in reversed(told) if event.get("event") == "after update"), None)
    if before is None or after is None:
        return None
    moved = sum(old != new for old, new in zip(before["exact"], after["exact"], strict=False))
    visible = {new for old, new in zip(before["seen"], after["seen"], strict=False) if old != new}
    held = [
        set(event["seen"])
        for event in told
        if event.get("event") == "rollout weights" and event["at"] >= after["at"]
    ]
    arrived = len(visible & set().union(*held)) if held else None
    return Weights(len(after["exact"]), moved, len(visible), arrived)


def metrics(log: str) -> Mapping[str, float]:
    """The numbers of the last step that verl printed; empty when it printed none."""
    steps = _METRIC.findall(log)
    return {name: float(value) for name, value in _NUMBER.findall(steps[-1])} if steps else {}

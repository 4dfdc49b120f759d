"""Whether a step moved the weights and the rollout got them, by the records of a witness in the processes.

Training's own metrics (`actor/grad_norm`) are kept as well: they are what people read in a real run.
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
    """`tensors` that an optimizer had before and after its steps, of which `moved` differ.

    `visible` are those that differ also in bfloat16, the rollout's type; `arrived` of these are in the
    rollout, bit for bit, None if the rollout recorded nothing after the step. Tensors that vLLM joins (query,
    key and value), or that training splits, arrive unseen: `renewed` are the rollout's tensors that it did
    not have before, None if it recorded nothing before.
    """

    tensors: int
    moved: int
    visible: int
    arrived: int | None
    renewed: int | None = None


def weights(documents: Sequence[Mapping[str, Any]]) -> Weights | None:
    """Combine the witness's records. Return None if no optimizer took a step."""
    before = next((event for event in documents if event.get("event") == "before update"), None)
    after = next((event for event in reversed(documents) if event.get("event") == "after update"), None)
    if before is None or after is None:
        return None
    moved = sum(old != new for old, new in zip(before["exact"], after["exact"], strict=False))
    visible = {new for old, new in zip(before["seen"], after["seen"], strict=False) if old != new}
    loads = [event for event in documents if event.get("event") == "rollout weights"]
    had = [set(event["seen"]) for event in loads if event["at"] < before["at"]]
    has = [set(event["seen"]) for event in loads if event["at"] >= after["at"]]
    now = set[str]().union(*has)
    arrived = len(visible & now) if has else None
    renewed = len(now.difference(*had)) if has and had else None
    return Weights(len(after["exact"]), moved, len(visible), arrived, renewed)


def metrics(log: str) -> Mapping[str, float]:
    """Return the numbers of the last step that verl printed; empty if there are none."""
    steps = _METRIC.findall(log)
    return {name: float(value) for name, value in _NUMBER.findall(steps[-1])} if steps else {}


def weights_wrong(moved: Weights | None, *, own_reward: bool) -> tuple[str, str] | None:
    """Return why a step that ended well had no effect; only what the rehearsal arranged is judged."""
    if not own_reward:
        return None
    if moved is None:
        return "verl reports that the step is done, and no optimizer took one", "SMOKE157"
    if moved.moved == 0:
        return f"the step moved none of {moved.tensors} tensors, with rewards that differ", "SMOKE157"
    if moved.visible and moved.arrived == 0 and not moved.renewed:
        return f"the step moved {moved.moved} tensors, and none of them arrived in the rollout", "SMOKE158"
    return None


def describe_weights(moved: Weights | None, numbers: Mapping[str, float]) -> list[str]:
    """Describe what the step did to the weights."""
    gradient = numbers.get("actor/grad_norm")
    norm = "" if gradient is None else f" (actor/grad_norm {gradient:.3g})"
    if moved is None:
        return [f"whether the weights moved could not be seen{norm}"]
    sentences = []
    if moved.moved == 0:
        sentences.append(f"the weights did not move{norm}{_why_not(numbers)}")
    else:
        sentences.append(f"{moved.moved} of {moved.tensors} tensors moved{norm}")
    if moved.visible and moved.arrived:
        sentences.append(
            f"{moved.visible} of them differ in bfloat16, and {moved.arrived} of these are in the "
            "rollout bit for bit: vLLM joins others into one"
        )
    elif moved.visible and moved.renewed:
        sentences.append(
            f"{moved.visible} of them differ in bfloat16, and {moved.renewed} tensors of the rollout "
            "are new since then: it has them in other pieces than training"
        )
    elif moved.moved and not moved.visible:
        sentences.append(
            "the learning rate is too small for a change that bfloat16 shows, so the rollout's are the same"
        )
    elif moved.visible:
        sentences.append("what the rollout received could not be seen")
    return sentences


def _why_not(numbers: Mapping[str, float]) -> str:
    if numbers.get("actor/lr") == 0:
        return ": the learning rate of the first step is 0, as a warm-up begins"
    highest, lowest = (numbers.get(f"critic/score/{end}") for end in ("max", "min"))
    if highest is not None and highest == lowest:
        return f": all answers got the same reward, {highest:g}, so there was nothing to learn"
    return ""

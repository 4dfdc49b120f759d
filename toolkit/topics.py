"""The pages of `verl-doctor explain` that are about no single rule."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping

from verl_doctor.toolkit import quick_card

TOPICS: Mapping[str, str] = {
    "card": "the commonest errors, and what helps at once",
    "debugging": "how to find out why a job hangs, dies or is slow",
    "variables": "variables that people set, and who of the installed packages reads them",
    "slurm": "batch jobs: prolog, guard, srun without Ray, many nodes",
    "containers": "Docker, Apptainer, enroot: GPUs, shared memory, limits, binds, which image it is",
}
"""Each topic with what its page tells."""


def page(topic: str) -> str:
    """The page of a topic that nothing has to be looked up for. `variables` is made by `variable_table`."""
    if topic == "card":
        return "\n".join(["# The commonest errors", "", *quick_card.listed(), ""])
    folder = importlib.resources.files("verl_doctor.toolkit") / "data" / "topics"
    return (folder / f"{topic}.md").read_text("utf-8")

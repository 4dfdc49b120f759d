"""The topics of `explain`, and the pages of those that do not depend on the environment."""

from __future__ import annotations

from collections.abc import Mapping

from verl_doctor.toolkit.commands.explain import quick_card
from verl_doctor.toolkit.system.own_files import DATA

TOPICS: Mapping[str, str] = {
    "card": "common errors and their immediate remedies",
    "debugging": "find out why a job hangs, crashes or is slow",
    "variables": "common variables, and which installed packages read them",
    "verdicts": "verdicts, exit codes, and the statuses of rules",
    "slurm": "batch jobs: prolog, guard, srun without Ray, many nodes",
    "containers": "Docker, Apptainer, enroot: GPUs, shared memory, limits, bind mounts, image versions",
}
"""Each topic with a summary of its page."""


def page(topic: str) -> str:
    """Return the page of a topic that does not depend on the environment.

    `variables` is made by `variable_table`.
    """
    if topic == "card":
        return "\n".join(["# Common errors", "", *quick_card.listed(), ""])
    return (DATA / "topics" / f"{topic}.md").read_text("utf-8")

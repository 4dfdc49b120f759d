"""The request to load files into the page cache, which is sent to nodes unchanged, and its execution."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.warm.ending import Ending
from verl_doctor.toolkit.warm.files import LeftOut, choose
from verl_doctor.toolkit.warm.room import room
from verl_doctor.toolkit.warm.summary import Summary, summary
from verl_doctor.toolkit.warm.warm import Moment, Plan, Warmed, survey, warm

Shown = Callable[[Plan], contextlib.AbstractContextManager[Callable[[Moment], None]]]
"""Shows the progress of a plan."""


@dataclass(frozen=True)
class WarmRequest:
    """A model's folder and other paths, ranks whose files count (empty for all), and the limit in bytes.

    The limit is the user's.

    `left_out` was named, but its location is unknown. With `dry_run`, nothing is read.
    """

    model: str = ""
    paths: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    limit: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    dry_run: bool = False


def warmed(machine: Machine, warm_request: WarmRequest, ending: Ending, shown: Shown) -> Summary:
    """Load the files, up to the available room, until an ending is requested."""
    model = Path(warm_request.model) if warm_request.model else None
    chosen = choose(model, map(Path, warm_request.paths), warm_request.ranks)
    left_out = (*warm_request.left_out, *chosen.left_out)
    plan = survey(machine, replace(chosen, left_out=left_out), room(machine), warm_request.limit)
    if warm_request.dry_run:
        return summary(Warmed(plan))
    with shown(plan) as report_progress:
        return summary(warm(machine, plan, ending.why, report_progress))

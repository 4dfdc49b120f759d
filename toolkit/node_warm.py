"""The part of the parcel that has files in the page cache of the node on which it runs, as `warmup` would there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.restore import restored
from verl_doctor.toolkit.warm import Moment, Plan
from verl_doctor.toolkit.warm_ending import Ending
from verl_doctor.toolkit.warm_request import WarmRequest
from verl_doctor.toolkit.warm_request import warmed as summed_up


def warmed(machine: Machine, asked: Any, seconds: float) -> dict[str, Any]:
    """What became of the request within so many seconds, as JSON has it."""
    return asdict(summed_up(machine, restored(WarmRequest, asked), Ending(seconds), _unseen))


@contextlib.contextmanager
def _unseen(_: Plan) -> Iterator[Callable[[Moment], None]]:
    yield lambda _: None

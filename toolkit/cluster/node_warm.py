"""The part of the parcel that loads files into the page cache of its node, like `warmup` there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.warm.ending import Ending
from verl_doctor.toolkit.warm.request import WarmRequest
from verl_doctor.toolkit.warm.request import warmed as summed_up
from verl_doctor.toolkit.warm.warm import Moment, Plan


def warmed(machine: Machine, fields: Any, seconds: float) -> dict[str, Any]:
    """Return the result of the request within this many seconds, in JSON types.

    The limit does not matter if nothing is missing.
    """
    found = summed_up(machine, restored(WarmRequest, fields), Ending(seconds), _unseen)
    return asdict(found if found.missing else replace(found, ended=""))


@contextlib.contextmanager
def _unseen(_: Plan) -> Iterator[Callable[[Moment], None]]:
    yield lambda _: None

"""Sample the resources that can run out, repeatedly, for a limited time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.commands.watch.forecast import Forecast, by_urgency, forecast
from verl_doctor.toolkit.commands.watch.metrics import Gauge, Stores, gauges
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import space_of

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is looked at, not written to


class Clock(Protocol):
    """The time in seconds, and how to wait. `wait` returns False if the user ends the watch."""

    def now(self) -> float:
        """Seconds since some moment."""

    def wait(self, seconds: float) -> bool:
        """Let time pass."""


@dataclass
class History:
    """All samples, gauge by gauge.

    A gauge that is missing from the last sample no longer exists, such as a raylet's folder.
    """

    seen: dict[str, list[tuple[float, Gauge]]] = field(default_factory=dict)
    looks: int = 0

    def add(self, at: float, found: tuple[Gauge, ...]) -> None:
        """Add one sample."""
        self.looks += 1
        self.seen = {gauge.name: [*self.seen.get(gauge.name, ()), (at, gauge)] for gauge in found}

    def forecasts(self) -> list[Forecast]:
        """Return the forecast of each gauge, the most urgent first."""
        return by_urgency([forecast(looks) for looks in self.seen.values()])


def watch(look: Callable[[], Stores], clock: Clock, *, every: float, until: float) -> Iterator[History]:
    """Sample every `every` seconds, at least once, until `until` seconds have passed.

    A slow sample delays the next one.
    """
    begun, history = clock.now(), History()
    while True:
        history.add(clock.now() - begun, gauges(look()))
        yield history
        waiting = every - (clock.now() - begun) % every
        if clock.now() - begun + waiting > until or not clock.wait(waiting):
            return


def stores_of(collection: Collection, machine: Machine, named: tuple[Path, ...]) -> Stores:
    """One sample of this machine, through the facts that the rules also use."""
    variables = collection.get(Variables)
    further = ((path, space_of(machine.at(str(path)))) for path in named)
    return Stores(
        folders=collection.get(Folders),
        shared_memory=space_of(machine.at(_SHARED_MEMORY)),
        memory=collection.get(HostMemory),
        limits=collection.get(HostLimits),
        gpus=collection.get(Gpus),
        variables=Variables() if isinstance(variables, Unknown) else variables,
        named=tuple((str(path), space) for path, space in further if space is not None),
    )

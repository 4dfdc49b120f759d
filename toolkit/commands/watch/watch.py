"""Looking at what can run out, again and again, for a limited time."""

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
    """The time in seconds, and waiting for more of it. `wait` returns False when the user wants no more."""

    def now(self) -> float:
        """Seconds since some moment."""

    def wait(self, seconds: float) -> bool:
        """Let time pass."""


@dataclass
class History:
    """Everything that was seen, gauge by gauge. What is not seen at the last look is over: a raylet's folder, say."""

    seen: dict[str, list[tuple[float, Gauge]]] = field(default_factory=dict)
    looks: int = 0

    def add(self, at: float, found: tuple[Gauge, ...]) -> None:
        """Take one look in."""
        self.looks += 1
        self.seen = {gauge.name: [*self.seen.get(gauge.name, ()), (at, gauge)] for gauge in found}

    def forecasts(self) -> list[Forecast]:
        """What is to be said of each gauge, the most urgent first."""
        return by_urgency([forecast(looks) for looks in self.seen.values()])


def watch(look: Callable[[], Stores], clock: Clock, *, every: float, until: float) -> Iterator[History]:
    """Look every `every` seconds, at least once, until `until` seconds have passed. A slow look delays the next one."""
    begun, history = clock.now(), History()
    while True:
        history.add(clock.now() - begun, gauges(look()))
        yield history
        waiting = every - (clock.now() - begun) % every
        if clock.now() - begun + waiting > until or not clock.wait(waiting):
            return


def stores_of(collection: Collection, machine: Machine, named: tuple[Path, ...]) -> Stores:
    """One look at this machine, through the facts that the rules have too."""
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

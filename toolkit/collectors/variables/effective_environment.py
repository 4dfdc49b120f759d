"""The value of each variable that a Ray worker of the job will actually see, and what decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.system.secret import BLANKED

Decider = Literal["the driver", "the raylet", "verl", "the runtime_env", "Ray", "nobody"]
WITHHELD = "it may be a secret"
NOT_DETERMINED = "it cannot be determined by reading"


@dataclass(frozen=True)
class Value:
    """The value of a variable in one process: `text`, or None if it is not set there.

    `undetermined` is why the text is unknown, "" if `text` is certain: it is `WITHHELD`, or cannot be
    determined. With `present` the variable is certainly set anyway.
    """

    text: str | None = None
    undetermined: str = ""
    present: bool = False

    @property
    def whole(self) -> str | None:
        """Return the text if it is known and unmasked, so that it can be passed to another process."""
        return None if self.undetermined or BLANKED in (self.text or "") else self.text

    @property
    def is_set(self) -> bool | None:
        """Whether the variable is set; None if unknown."""
        if self.undetermined and not self.present:
            return None
        return self.present or self.text is not None

    def differs(self, other: Value) -> bool:
        """Return whether two processes certainly have different values."""
        if None in (self.is_set, other.is_set) or self.is_set != other.is_set:
            return None not in (self.is_set, other.is_set)
        return not self.undetermined and not other.undetermined and self.text != other.text


@dataclass(frozen=True)
class Assigned:
    """A place that sets a variable for some process of the job.

    `value` is the new value, `to` a short description of the process, `path` and `line` where it is written.
    """

    value: Value
    to: str
    path: str = ""
    line: int = 0


@dataclass(frozen=True)
class Effective:
    """One variable, as seen by the processes of the job.

    `driver` is the process that the launch script starts. `raylets` are the values in the running raylets,
    one for each of `EffectiveEnvironment.raylets`, and `workers` the values that the workers of each start
    with; both have one entry if the job starts its own Ray or nothing is known of the raylets. `decided_by`
    is the source of the workers' value, `path` and `line` where that is written; with "nobody" the workers do
    not see the variable, and the driver's value is written there. `dropped` is the value that verl would have
    set if the driver had not set the variable itself. `later` are the processes for which verl sets another
    value, when it creates them or while they run.
    """

    name: str
    driver: Value
    raylets: tuple[Value, ...]
    workers: tuple[Value, ...]
    decided_by: Decider
    path: str = ""
    line: int = 0
    dropped: Assigned | None = None
    later: tuple[Assigned, ...] = ()

    @property
    def raylet(self) -> Value:
        """Return the raylets' value."""
        return _common(self.raylets)

    @property
    def worker(self) -> Value:
        """Return the workers' value."""
        return _common(self.workers)

    @property
    def differs(self) -> bool:
        """Whether the processes certainly have different values."""
        first, *others = (self.driver, *self.raylets, *self.workers)
        return any(first.differs(other) for other in others)


@dataclass(frozen=True)
class RayletHere:
    """A raylet whose workers the job would use."""

    pid: int
    address: str = ""


@dataclass(frozen=True)
class Clash:
    """A variable set by both a submitted job's `runtime_env` and the driver's `ray.init`."""

    name: str
    path: str
    line: int
    verl_path: str
    verl_line: int


@dataclass(frozen=True)
class EffectiveEnvironment:
    """The variables that matter to the job, by name.

    `raylets` are those that the job would join here, empty if it starts its own Ray (`standing` is empty) or
    if they cannot be read; `standing` then is the cluster that it joins. `verl` is the file that sets
    variables for the workers. `unread` are sentences about what could not be followed. Without `uses_ray` the
    program starts no Ray, and `workers` are its own processes. `by_script`: the launch script starts Ray
    itself, so that the workers inherit what it sets before that. `clashes` are variables for which Ray
    rejects the job.
    """

    rows: tuple[Effective, ...] = ()
    raylets: tuple[RayletHere, ...] = ()
    standing: str = ""
    verl: str = ""
    unread: tuple[str, ...] = ()
    uses_ray: bool = True
    by_script: bool = False
    clashes: tuple[Clash, ...] = ()

    def get(self, name: str) -> Effective | None:
        """Return the row of one variable; None if no process has it."""
        return next((row for row in self.rows if row.name == name), None)

    def worker(self, name: str) -> Value:
        """Return the workers' value of a variable."""
        row = self.get(name)
        return Value() if row is None else row.worker


def _common(values: tuple[Value, ...]) -> Value:
    """Return the common value, or a marker that the values differ."""
    if len(set(values)) == 1:
        return values[0]
    return Value(undetermined="not the same in all raylets here")

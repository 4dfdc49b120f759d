"""What a Ray worker of the job will really see of each variable, and who decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.system.secret import BLANKED

Decider = Literal["the driver", "the raylet", "verl", "the runtime_env", "Ray", "nobody"]
WITHHELD = "it may be a secret"
NOT_TOLD = "reading cannot tell it"


@dataclass(frozen=True)
class Value:
    """What one process has under a name: `text`, or None when it is not set there.

    `untold` says why the text is not known, "" when `text` is the truth: it is `WITHHELD`, or reading cannot tell it. With
    `present` it is certain that the variable is set anyway.
    """

    text: str | None = None
    untold: str = ""
    present: bool = False

    @property
    def whole(self) -> str | None:
        """The text, when it is known and nothing in it was blanked, so that it can be given to another process."""
        return None if self.untold or BLANKED in (self.text or "") else self.text

    @property
    def is_set(self) -> bool | None:
        """Whether the variable is there; None when that cannot be told."""
        if self.untold and not self.present:
            return None
        return self.present or self.text is not None

    def differs(self, other: Value) -> bool:
        """Whether it is certain that two processes have different values."""
        if None in (self.is_set, other.is_set) or self.is_set != other.is_set:
            return None not in (self.is_set, other.is_set)
        return not self.untold and not other.untold and self.text != other.text


@dataclass(frozen=True)
class Assigned:
    """A place that gives a variable to some process of the job.

    `value` is what it gives, `to` says in a few words which process, `path` and `line` where that is written.
    """

    value: Value
    to: str
    path: str = ""
    line: int = 0


@dataclass(frozen=True)
class Effective:
    """One variable, as the parties of the job have it.

    `driver` is the process that the launch script starts. `raylets` are what the running raylets have, one for each of
    `EffectiveEnvironment.raylets`, and `workers` what the workers of each see when they start; both have one entry when
    the job starts its own Ray or nothing is known of the raylets. `decided_by` says whose value the workers see, `path`
    and `line` where that is written; with "nobody" they do not see it, and it is the driver's value that is written there.
    `dropped` is what verl would have given, had the driver not set the variable itself. `later` are the processes that
    verl gives another value, when it creates them or while they run.
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
        """What the raylets have."""
        return _common(self.raylets)

    @property
    def worker(self) -> Value:
        """What the workers see."""
        return _common(self.workers)

    @property
    def differs(self) -> bool:
        """Whether it is certain that not all parties have the same value."""
        first, *others = (self.driver, *self.raylets, *self.workers)
        return any(first.differs(other) for other in others)


@dataclass(frozen=True)
class RayletHere:
    """A raylet whose workers the job would use."""

    pid: int
    address: str = ""


@dataclass(frozen=True)
class Clash:
    """A variable that the `runtime_env` of a job that was handed in gives, and the driver's `ray.init` too."""

    name: str
    path: str
    line: int
    verl_path: str
    verl_line: int


@dataclass(frozen=True)
class EffectiveEnvironment:
    """The variables that matter to the job, by name.

    `raylets` are those that the job would join here, none when it starts its own Ray (`standing` is empty) or when they
    cannot be read; `standing` says then which cluster it joins. `verl` is the file that gives variables to the workers. `unread`
    are sentences about what could not be followed. Without `uses_ray` the program
    starts no Ray, and `workers` are its own processes. `by_script`: the launch script starts Ray itself, so that the
    workers inherit what it sets before that. `clashes` are variables over which Ray refuses the job.
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
        """The row of one variable; None when no party sets it."""
        return next((row for row in self.rows if row.name == name), None)

    def worker(self, name: str) -> Value:
        """What the workers see of a variable."""
        row = self.get(name)
        return Value() if row is None else row.worker


def _common(values: tuple[Value, ...]) -> Value:
    """One value for all, or the word that they differ."""
    if len(set(values)) == 1:
        return values[0]
    return Value(untold="not the same in all raylets here")

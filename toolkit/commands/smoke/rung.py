"""The building blocks of the rungs of `verl-doctor smoke`.

A rung is a module `rung_*.py` with a function `climb(stage: Stage) -> Outcome`. Its trials run in children:
`Stage.run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.smoke.run import Device, Status, Step
from verl_doctor.toolkit.commands.smoke.child import Ran, Watch, run_logged
from verl_doctor.toolkit.commands.smoke.folder import MARK, long_as
from verl_doctor.toolkit.commands.smoke.kernel_builds import KernelBuilds
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.target import Target

__all__ = ["Device", "Outcome", "Stage", "Status", "Step"]

_LONGEST = 600.0  # seconds of one child
_LEAST = 1.0  # second that a child gets after the end of the whole run's time: it ends with that reason


@dataclass(frozen=True)
class Outcome:
    """How far one rung was climbed.

    `cause` is the first cause of a failure, or why the rung is not applicable or was not reached. `lines` are
    the few lines of the log that show it, `log` is that file, which is kept after the run. `code` is that of
    the rule for this kind of failure (SMOKE101...), `remedy` the next step. `steps` were done before. `notes`
    are further remarks. `phase` is the phase of a job in which the rung failed, None for the rule's own.
    """

    status: Status
    cause: str = ""
    remedy: str = ""
    code: str = ""
    lines: tuple[str, ...] = ()
    log: Path | None = None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    phase: Phase | None = None


@dataclass(frozen=True)
class Stage:
    """The input of a rung.

    `python` is the target's interpreter, `environ` the environment in which the job starts. `folder` is
    private to this run and removed afterwards; its path is short, because it contains Ray's sockets. `logs`
    is a folder that is kept if the rung fails. `model`, `train` and `validation` are the files for the climb:
    the user's own (`own_model`) or tiny ones; None if there are none. `facts` are those of the target,
    `target` is what the user named (`files` and `words` are the launch script and its arguments). `begun` is
    the start of the climb in seconds of time.monotonic, `budget` the limit for all its rungs together.
    """

    machine: Machine
    target: Target
    facts: Facts
    python: str
    environ: Mapping[str, str]
    folder: Path
    logs: Path
    device: Device
    model: Path | None = None
    train: Path | None = None
    validation: Path | None = None
    own_model: bool = False
    begun: float = field(default_factory=time.monotonic)
    budget: float = _LONGEST
    show: Callable[[str], None] = field(default=lambda _: None)
    look: Callable[[Collection[tuple[int, int]]], None] = field(default=lambda _: None)

    @property
    def left(self) -> float:
        """The seconds left of the climb's time."""
        return self.begun + self.budget - time.monotonic()

    @property
    def gpus(self) -> int:
        """The number of GPUs that the job sees; one if unknown."""
        resources = self.facts.get(Resources)
        known = () if isinstance(resources, Unknown) else resources.gpus or ()
        return len(known) or 1

    def run(
        self,
        argv: Sequence[str],
        *,
        limit: float = _LONGEST,
        variables: Mapping[str, str | None] | None = None,
        watch: Watch | None = None,
        name: str = "child",
    ) -> Ran:
        """Run a child like the job, with a private home, temporary folder and Ray; keep nothing it wrote.

        It has `limit` seconds, or what is left of the climb's time. `variables` are set in addition to the
        job's own; None removes one. `watch` receives the text so far about once a second; a reason that it
        returns ends the child. `name` is that of the log. All descendants have ended when this returns.
        Raises OSError if the child cannot be started.
        """
        wanted = {**self.environ, **private_variables(self.folder, self.environ), **(variables or {})}
        builds = KernelBuilds(self.machine)

        def look(processes: Collection[tuple[int, int]]) -> None:
            self.look(processes)
            builds.look(processes)

        def at(step: str) -> None:
            found = builds.found
            compiled = f"nvcc compiles {found.what}" if found and found.going_on else ""
            if text := ", ".join(filter(None, (step, compiled))):
                self.show(text)

        ran = run_logged(
            argv,
            {name: value for name, value in wanted.items() if value is not None},
            self.folder,
            self._log(name),
            limit=max(_LEAST, min(limit, self.left)),
            watch=watch,
            look=look,
            at=at,
        )
        return replace(ran, builds=builds.found)

    def _log(self, name: str) -> Path:
        """Return the path of a new log that does not exist yet."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = self.logs / (f"{name}.log" if number == 1 else f"{name}-{number}.log")
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            return path
        raise FileExistsError(f"{self.logs} holds a thousand logs called {name}")


def private_variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables separating a child and its Ray from the user's home, temporary folder and clusters.

    RAY_ADDRESS would select another cluster, RAY_NAMESPACE and a job's configuration another job. Ray 2.60
    enables token authentication by itself and writes a token into the home (ray-project/ray,
    python/ray/_private/authentication). Ray uses TMPDIR for its sessions if RAY_TMPDIR is not set.
    """
    home, temporary = folder / "home", folder / "tmp"
    for path in (home, temporary):
        path.mkdir(mode=0o700, exist_ok=True)
    return {
        **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), str(home)),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "TMPDIR": str(long_as(temporary, environ, "TMPDIR")),
        "RAY_TMPDIR": str(long_as(folder, environ, "RAY_TMPDIR", "TMPDIR")),
        "RAY_ADDRESS": None,
        "RAY_NAMESPACE": None,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": None,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        MARK: str(folder),
    }

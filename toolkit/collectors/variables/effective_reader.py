"""Traces each variable from the shell to the workers: the rows of the table, without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.collectors.launch.environment import as_far_as_shown
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    NOT_DETERMINED,
    WITHHELD,
    Assigned,
    Clash,
    Effective,
    EffectiveEnvironment,
    RayletHere,
    Value,
)
from verl_doctor.toolkit.collectors.variables.environment_layers import (
    NOWHERE,
    Base,
    Held,
    bases,
    given_to_job,
    overlaid,
    submitted,
    texts,
    worker,
)
from verl_doctor.toolkit.collectors.variables.job_parties import Parties, job_of
from verl_doctor.toolkit.collectors.variables.ray_environment import may_override
from verl_doctor.toolkit.collectors.variables.verl_environment import (
    WORKERS,
    Job,
    ProcessVariable,
    Start,
    for_servers,
    start,
    while_running,
)
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_values import SOME_TEXT, Table

_UNSET = object()


@dataclass(frozen=True)
class _Seen:
    """The input of all rows: the variables of each process.

    `workers` has one entry for each of the `bases`.
    """

    driver: Table
    begun: Start
    bases: list[Base]
    workers: list[dict[str, Held]]
    job_vars: Mapping[str, Held]
    defaults: Table
    later: Mapping[str, list[ProcessVariable]]

    def names(self) -> list[str]:
        """Return the variables that matter to a job, and those set by anything other than the user."""
        environs = [self.driver, *(base.environ for base in self.bases)]
        shown = {name for environ in environs for name in as_far_as_shown(texts(environ)).names()}
        by_ray = {name for held in self.workers for name, variable in held.items() if variable.by == "Ray"}
        return sorted({*shown, *by_ray, *self.begun.env_vars, *self.job_vars})


def resolved_environment(parties: Parties) -> EffectiveEnvironment:
    """Return every variable that matters to the job, and its value in each process."""
    notes: list[str] = []
    job = job_of(parties, notes)
    shell = overlaid(
        parties.machine.environ, [setting for setting in parties.settings if not setting.reaches_workers]
    )
    job_vars = given_to_job(parties)
    driver = submitted(parties, shell, job_vars) if parties.submitted else shell
    begun = _begun(job, driver, notes, parties)
    found, standing = bases(parties, shell, begun)
    workers = [worker(parties, job, base, begun, job_vars) for base in found]
    defaults = start(job, {}).env_vars if job is not None else Table()
    later = _later(job, workers[0]) if job is not None else {}
    seen = _Seen(driver, begun, found, workers, job_vars, defaults, later)
    return EffectiveEnvironment(
        tuple(_row(name, seen) for name in seen.names()),
        tuple(RayletHere(base.raylet.pid, base.raylet.address) for base in found if base.raylet),
        standing,
        str(job.program) if job is not None else "",
        tuple(notes),
        uses_ray=begun.uses_ray,
        by_script=parties.starts_ray and begun.uses_ray,
        clashes=tuple(_clashes(parties, seen)),
    )


def _row(name: str, seen: _Seen) -> Effective:
    held = [held_value.get(name) for held_value in seen.workers]
    lost = Held(UNCLEAR, "nobody", seen.driver.places.get(name, NOWHERE))
    decided = next((held_value for held_value in held if held_value is not None), lost)
    dropped = None
    if name in seen.defaults and name in seen.driver and name not in seen.begun.env_vars:
        default = ProcessVariable(name, seen.defaults[name], seen.defaults.places[name], WORKERS)
        dropped = _assigned(name, default)
    return Effective(
        name,
        _of_driver(name, seen),
        tuple(_inherited(name, base) for base in seen.bases),
        tuple(_of_worker(name, held_value, base) for held_value, base in zip(held, seen.bases, strict=True)),
        decided.by,
        *decided.place,
        dropped,
        tuple(_assigned(name, held_value) for held_value in seen.later.get(name, ())),
    )


def _of_driver(name: str, seen: _Seen) -> Value:
    if seen.driver.open and name not in seen.driver:
        return Value(undetermined=seen.bases[0].unknown)
    return _shown(name, seen.driver.get(name, _UNSET))


def _inherited(name: str, base: Base) -> Value:
    return Value(undetermined=base.unknown) if base.unknown else _shown(name, base.environ.get(name, _UNSET))


def _of_worker(name: str, held: Held | None, base: Base) -> Value:
    if held is None:
        return Value(undetermined=base.unknown)
    value = _shown(name, held.raw, held.why)
    return value if held.sure else replace(value, present=False)


def _later(job: Job, worker: Mapping[str, Held]) -> dict[str, list[ProcessVariable]]:
    """Return what verl sets for processes other than the training workers, or while they run, by name."""
    environ = Table({name: held.raw for name, held in worker.items()})
    found: dict[str, list[ProcessVariable]] = {}
    for given in (*for_servers(job, environ), *while_running(job)):
        found.setdefault(given.name, []).append(given)
    return found


def _begun(job: Job | None, driver: Table, notes: list[str], parties: Parties) -> Start:
    """Return the state of the job before `ray.init`."""
    environ = Table(driver)
    if parties.submitted:
        environ.put(
            "RAY_JOB_CONFIG_JSON_ENV_VAR", SOME_TEXT, NOWHERE
        )  # with it Ray passes the job to the driver
    if job is None:
        return Start(environ)
    begun = start(job, environ)
    if not begun.reached and begun.uses_ray:
        notes.append(
            f"{job.program}: no way to ray.init was found in it, so what it gives to the workers is not known"
        )
    elif begun.env_vars.open and job.configuration is not UNCLEAR:
        notes.append(
            f"{job.program}: it may give further variables to the workers, whose names are not known"
        )
    return begun


def _clashes(parties: Parties, seen: _Seen) -> Iterator[Clash]:
    """Yield what both a submitted job and its driver set. Older releases of Ray do not check for that."""
    if not parties.submitted or parties.ray is None or not may_override(parties.ray):
        return
    if seen.driver.get("RAY_OVERRIDE_JOB_RUNTIME_ENV") == "1":
        return
    given = seen.begun.env_vars
    for name, held in seen.job_vars.items():
        if given.get(name, UNCLEAR) is not UNCLEAR:
            yield Clash(name, *held.place, *given.places.get(name, NOWHERE))


def _shown(name: str, raw: Any, why: str = "") -> Value:
    """Return a value in a form that may be shown."""
    if raw is _UNSET:
        return Value()
    seen = as_far_as_shown({name: raw if isinstance(raw, str) else ""}, (name,))
    if not isinstance(raw, str) and name in seen.values:
        return Value(undetermined=why or NOT_DETERMINED, present=raw is SOME_TEXT or bool(why))
    return Value(seen.values[name]) if name in seen.values else Value(undetermined=WITHHELD, present=True)


def _assigned(name: str, given: ProcessVariable) -> Assigned:
    value = Value() if given.value is None else _shown(name, given.value)
    return Assigned(value, given.to, *given.place)

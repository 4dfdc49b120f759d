"""The environment of a job's workers, put together: the raylet's, over it the `runtime_env`, over it what creates the worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_effective_environment import (
    WITHHELD,
    Assigned,
    Clash,
    Decider,
    Effective,
    EffectiveEnvironment,
    RayletHere,
    Value,
)
from verl_doctor.toolkit.fact_environment import as_far_as_shown
from verl_doctor.toolkit.fact_gpus import Gpus
from verl_doctor.toolkit.fact_launch import Launch, Setting
from verl_doctor.toolkit.fact_raylets import Raylet, Raylets, environ_of
from verl_doctor.toolkit.fact_trees import LibraryTrees, TorchTree, VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.hydra_lookup import MISSING
from verl_doctor.toolkit.hydra_program import program_file
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.py_evaluate import UNCLEAR
from verl_doctor.toolkit.py_follow_values import SOME_TEXT, Place, Table
from verl_doctor.toolkit.py_source import SourceTree
from verl_doctor.toolkit.ray_environment import (
    address,
    expanded,
    for_workers,
    inherited,
    joined,
    may_override,
)
from verl_doctor.toolkit.verl_environment import (
    WORKERS,
    Given,
    Job,
    Start,
    configured,
    for_actors,
    start,
    while_running,
)

NOWHERE: Place = ("", 0)
_MAIN = "trainer.main_ppo"
_NOT_TOLD = "reading cannot tell it"
_PER_WORKER = "each is given its own"
_BY_RAY = "what Ray sets for each"
_UNSET = object()


@dataclass(frozen=True)
class Parties:
    """What a job is put together from."""

    machine: Machine
    launch: Launch | Unknown
    configuration: Configuration | Unknown
    trees: VerlTrees | Unknown
    torch: TorchTree | Unknown
    libraries: LibraryTrees | Unknown
    raylets: Raylets | Unknown
    gpus: Gpus | Unknown

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What the launch files give."""
        return () if isinstance(self.launch, Unknown) else self.launch.settings

    @property
    def starts_ray(self) -> bool:
        """Whether the launch script starts Ray itself."""
        return isinstance(self.launch, Launch) and bool(self.launch.ray_starts)

    @property
    def submitted(self) -> bool:
        """Whether the driver is started by the cluster (`ray job submit`), not from this shell."""
        return isinstance(self.launch, Launch) and self.launch.submitted


@dataclass(frozen=True)
class _Held:
    """What a process has under a name: a text, `SOME_TEXT` or `UNCLEAR`; who gave it, and where that is written."""

    raw: Any
    by: Decider
    place: Place = NOWHERE
    why: str = ""


@dataclass(frozen=True)
class _Base:
    """The environment that workers inherit. With `unknown` nothing is known of it, for that reason."""

    environ: Table
    by: Decider
    raylet: Raylet | None = None
    unknown: str = ""


def told(parties: Parties) -> EffectiveEnvironment:
    """Every variable that matters to the job, and what becomes of it."""
    notes: list[str] = []
    job = _job(parties, notes)
    shell = _overlaid(parties.machine.environ, [one for one in parties.settings if not one.reaches_workers])
    job_vars = _given_to_job(parties)
    driver = shell
    if parties.submitted:
        driver = _submitted(parties, shell, job_vars)
    begun = _begun(job, Table(driver), notes)
    bases, standing = _bases(parties, shell, begun)
    workers = [_worker(parties, job, base, begun, job_vars) for base in bases]
    defaults = start(job, {}).env_vars if job is not None else Table()
    later = _later(job, workers[0]) if job is not None else {}
    names = {
        *as_far_as_shown(_texts(driver)).names(),
        *(name for base in bases for name in as_far_as_shown(_texts(base.environ)).names()),
        *begun.env_vars,
        *job_vars,
        *(name for worker in workers for name, held in worker.items() if held.by == "Ray"),
    }
    rows = []
    for name in sorted(names):
        held = [worker.get(name) for worker in workers]
        lost = _Held(UNCLEAR, "nobody", driver.places.get(name, NOWHERE))
        decided = next((one for one in held if one is not None), lost)
        dropped = name in defaults and name in driver and name not in begun.env_vars
        rows.append(
            Effective(
                name,
                _shown(name, driver.get(name, _UNSET)),
                tuple(
                    Value(untold=base.unknown)
                    if base.unknown
                    else _shown(name, base.environ.get(name, _UNSET))
                    for base in bases
                ),
                tuple(
                    Value(untold=base.unknown)
                    if one is None and base.unknown
                    else _shown(name, _UNSET if one is None else one.raw, one.why if one else "")
                    for one, base in zip(held, bases, strict=True)
                ),
                decided.by,
                path=decided.place[0],
                line=decided.place[1],
                dropped=_assigned(name, Given(name, defaults[name], defaults.places[name], WORKERS))
                if dropped
                else None,
                later=tuple(_assigned(name, given) for given in later.get(name, ())),
            )
        )
    return EffectiveEnvironment(
        tuple(rows),
        tuple(RayletHere(base.raylet.pid, base.raylet.address) for base in bases if base.raylet),
        standing,
        str(job.program) if job is not None else "",
        tuple(notes),
        tuple(_clashes(parties, driver, begun, job_vars)),
    )


def _clashes(parties: Parties, driver: Table, begun: Start, job_vars: Mapping[str, _Held]) -> Iterator[Clash]:
    """What a job that was handed in and its driver both give. Older releases of Ray do not look for that."""
    refuses = _ray(parties) is not None and may_override(_ray(parties) or Path())
    if not parties.submitted or not refuses or driver.get("RAY_OVERRIDE_JOB_RUNTIME_ENV") == "1":
        return
    for name, held in job_vars.items():
        if begun.env_vars.get(name, UNCLEAR) is not UNCLEAR:
            yield Clash(name, *held.place, *begun.env_vars.places.get(name, NOWHERE))


def _ray(parties: Parties) -> Path | None:
    """The folder of the Ray that the job imports."""
    if isinstance(parties.libraries, Unknown):
        return None
    return next((Path(tree.folder) for tree in parties.libraries.trees if tree.module == "ray"), None)


def _overlaid(environ: Mapping[str, Any], settings: Iterable[Setting]) -> Table:
    """An environment with what launch files give and take away; what stands under a condition is unclear."""
    table = Table(environ)
    for one in settings:
        place = one.path, one.line
        if one.removed:
            table.take(one.name, place, weakly=one.conditional)
        else:
            value = SOME_TEXT if one.value is None else one.value
            table.put(one.name, value, place, weakly=one.conditional)
    return table


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    """The names of an environment with their texts; with an empty one where it is not known."""
    return {name: value if isinstance(value, str) else "" for name, value in table.items()}


def _given_to_job(parties: Parties) -> dict[str, _Held]:
    """The variables of a `runtime_env` of the user's that is no part of verl's configuration."""
    composed = isinstance(parties.configuration, Configuration) and not parties.configuration.refused
    asked = {(one.path, one.line) for one in parties.configuration.asked} if composed else set()  # type: ignore[union-attr]
    return {
        one.name: _Held(
            SOME_TEXT if one.value is None else one.value, "the runtime_env", (one.path, one.line)
        )
        for one in parties.settings
        if one.reaches_workers and not one.by_raylet and (one.path, one.line) not in asked
    }


def _submitted(parties: Parties, shell: Table, job_vars: Mapping[str, _Held]) -> Table:
    """The environment of a driver that the cluster starts: a raylet's, and over it the job's `runtime_env`."""
    bases, _ = _bases(parties, shell, Start(Table(), address="auto"))
    driver = Table(bases[0].environ)
    for name, held in job_vars.items():
        driver.put(name, held.raw, held.place)
    driver.put("RAY_JOB_CONFIG_JSON_ENV_VAR", SOME_TEXT, NOWHERE)
    return driver


def _bases(parties: Parties, shell: Table, begun: Start) -> tuple[list[_Base], str]:
    """What workers inherit from, and the address of the cluster that the job joins; "" when it starts its own."""
    if parties.starts_ray:
        given = [one for one in parties.settings if one.by_raylet]
        return [_Base(_overlaid(parties.machine.environ, given), "the raylet")], ""
    at = "auto"  # a driver that the cluster starts is told its address
    if not parties.submitted:
        at = address(begun.address, _texts(begun.environ or shell), parties.machine)
    if not at:
        return [_Base(begun.environ, "the driver")], ""
    known = () if isinstance(parties.raylets, Unknown) else joined(at, parties.raylets.running)
    bases = []
    for raylet in known:
        environ = environ_of(raylet.pid, parties.machine)
        if environ is not None:
            bases.append(_Base(Table(inherited(environ)), "the raylet", raylet))
    if not bases:
        why = f"no raylet of {at} is seen here" if at != "auto" else "no raylet is seen here"
        bases.append(_Base(Table(), "the raylet", unknown=why))
    cluster = bases[0].raylet.cluster if at == "auto" and bases[0].raylet else at
    return bases, cluster


def _worker(
    parties: Parties, job: Job | None, base: _Base, begun: Start, job_vars: Mapping[str, _Held]
) -> dict[str, _Held]:
    """What a training worker has when it starts, layer upon layer."""
    inherited = {
        name: _Held(value, base.by, base.environ.places.get(name, NOWHERE))
        for name, value in base.environ.items()
    }
    texts = _texts(base.environ)
    worker = {**inherited, **{name: _expanded(held, texts) for name, held in job_vars.items()}}
    for name, value in begun.env_vars.items():
        place = begun.env_vars.places.get(name, NOWHERE)
        by: Decider = "verl" if place[0].endswith(".py") else "the runtime_env"
        worker[name] = _expanded(_Held(value, by, place), texts)
    if job is not None:
        environ = Table({name: held.raw for name, held in worker.items()})
        for one in for_actors(job, environ):
            if one.to == WORKERS:
                worker[one.name] = _Held(one.value, "verl", one.place, _PER_WORKER)
    ray = _ray(parties)
    for one in for_workers(ray, tuple(worker)) if ray is not None else ():
        worker[one.name] = _Held(one.value, "Ray", one.place, _BY_RAY)
    return worker


def _expanded(held: _Held, texts: Mapping[str, str]) -> _Held:
    """A variable of a `runtime_env` as Ray sets it."""
    return replace(held, raw=expanded(held.raw, texts)) if isinstance(held.raw, str) else held


def _later(job: Job, worker: Mapping[str, _Held]) -> dict[str, list[Given]]:
    """What verl gives to other processes than the training workers, or sets while they run, by name."""
    environ = Table({name: held.raw for name, held in worker.items()})
    found: dict[str, list[Given]] = {}
    for one in (*(given for given in for_actors(job, environ) if given.to != WORKERS), *while_running(job)):
        found.setdefault(one.name, []).append(one)
    return found


def _begun(job: Job | None, driver: Table, notes: list[str]) -> Start:
    """The job as it stands before `ray.init`."""
    if job is None:
        return Start(driver)
    begun = start(job, driver)
    if not begun.reached:
        notes.append(
            f"{job.program}: no way to ray.init was found in it, so what it gives to the workers is not known"
        )
    elif begun.env_vars.open and job.configuration is not UNCLEAR:
        notes.append(
            f"{job.program}: it may give further variables to the workers, whose names are not known"
        )
    return begun


def _job(parties: Parties, notes: list[str]) -> Job | None:
    if isinstance(parties.trees, Unknown):
        notes.append(f"what verl gives to the workers is not known: {parties.trees.reason}")
        return None
    tree = parties.trees.imported
    folder = Path(tree.folder)
    module = f"{tree.module}.{_MAIN}"
    command = None if isinstance(parties.launch, Unknown) else parties.launch.command
    if command is not None:
        module = command.module
        around = [parties.machine.cwd, Path(command.path).parent, folder.parent]
        program = program_file(module, around, folder)
    else:
        program = folder.joinpath(*_MAIN.split(".")).with_suffix(".py")
    if program is None or not program.is_file():
        notes.append(f"what verl gives to the workers is not known: the source of {module} was not found")
        return None
    job = Job(
        SourceTree(folder, tree.module, alias="verl"),
        program,
        module,
        libraries=_libraries(parties),
        capability=_capability(parties),
    )
    if isinstance(parties.configuration, Unknown) or parties.configuration.refused:
        reason = (
            parties.configuration.reason if isinstance(parties.configuration, Unknown) else "Hydra refuses it"
        )
        notes.append(f"what depends on verl's configuration cannot be told: {reason}")
        return job
    known = configured(parties.configuration)
    return replace(
        job,
        configuration=known,
        rollout=_named(parties.configuration, "actor_rollout_ref.rollout.name", job.rollout),
        strategy=_named(parties.configuration, "actor_rollout_ref.actor.strategy", job.strategy),
    )


def _named(configuration: Configuration, key: str, default: str) -> str:
    """A name in the configuration: verl's own default where there is no such key, "" when it cannot be told."""
    value = configuration.get(key)
    return default if value is MISSING else value if isinstance(value, str) else ""


def _capability(parties: Parties) -> Any:
    """What verl would be told of the GPUs where the driver runs. Without GPUs here that is known only if Ray runs here."""
    if isinstance(parties.gpus, Unknown):
        no_gpu_at_the_driver = isinstance(parties.gpus, Absent) and not isinstance(parties.raylets, Unknown)
        return (None, None) if no_gpu_at_the_driver else UNCLEAR
    told = {device.capability for device in parties.gpus.sound if device.capability}
    return tuple(map(int, told.pop().split("."))) if len(told) == 1 else UNCLEAR


def _libraries(parties: Parties) -> dict[str, Path]:
    """The folders of the packages whose constants verl asks for."""
    found = {} if isinstance(parties.torch, Unknown) else {"torch": Path(parties.torch.tree.folder)}
    ray = _ray(parties)
    return found if ray is None else {**found, "ray": ray}


def _shown(name: str, raw: Any, why: str = "") -> Value:
    """A value as it may be shown."""
    if raw is _UNSET:
        return Value()
    seen = as_far_as_shown({name: raw if isinstance(raw, str) else ""}, (name,))
    if not isinstance(raw, str) and name in seen.values:
        return Value(untold=why or _NOT_TOLD, present=raw is SOME_TEXT or bool(why))
    return Value(seen.values[name]) if name in seen.values else Value(untold=WITHHELD, present=True)


def _assigned(name: str, given: Given) -> Assigned:
    value = Value() if given.value is None else _shown(name, given.value)
    return Assigned(value, given.to, *given.place)

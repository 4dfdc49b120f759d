"""Layers of a worker's environment: the raylet's, the `runtime_env`, then what the worker's creator sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.collectors.gpu.kinds import GpuKinds
from verl_doctor.toolkit.collectors.launch.launch import Setting
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, environ_of
from verl_doctor.toolkit.collectors.variables import ray_environment, verl_environment
from verl_doctor.toolkit.collectors.variables.effective_environment import Decider
from verl_doctor.toolkit.collectors.variables.job_parties import Parties
from verl_doctor.toolkit.collectors.variables.ray_environment import (
    address,
    devices_of_workers,
    expanded,
    inherited,
    joined,
    named_in,
)
from verl_doctor.toolkit.collectors.variables.verl_environment import Job, Start
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_values import SOME_TEXT, Place, Table

NOWHERE: Place = ("", 0)
_PER_WORKER = "each is given its own"
_BY_RAY = "Ray sets it for each worker"
_DEVICES = "Ray gives each the GPUs that it requested, of those that the raylet may see"


@dataclass(frozen=True)
class Held:
    """A name's value in a process (text, `SOME_TEXT` or `UNCLEAR`), what set it, and where it is written.

    `why` is the reason for messages if it is not a text; unless `sure`, the variable may also be unset.
    """

    raw: Any
    by: Decider
    place: Place = NOWHERE
    why: str = ""
    sure: bool = True


@dataclass(frozen=True)
class Base:
    """The environment that workers inherit. With `unknown` nothing is known of it, for that reason."""

    environ: Table
    by: Decider
    raylet: Raylet | None = None
    unknown: str = ""


def overlaid(environ: Mapping[str, Any], settings: Iterable[Setting]) -> Table:
    """Apply the settings and removals of launch files to an environment; conditional ones are unclear."""
    table = Table(environ)
    for setting in settings:
        place = setting.path, setting.line
        if setting.removed:
            table.take(setting.name, place, weakly=setting.conditional)
        else:
            value = SOME_TEXT if setting.value is None else setting.value
            table.put(setting.name, value, place, weakly=setting.conditional)
    return table


def texts(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of an environment with their texts, "" for an unknown one."""
    return {name: value if isinstance(value, str) else "" for name, value in table.items()}


def given_to_job(parties: Parties) -> dict[str, Held]:
    """Return the variables of the user's `runtime_env` outside verl's configuration."""
    configuration = parties.configuration
    words = () if isinstance(configuration, Unknown) or configuration.refused else configuration.overrides
    from_overrides = {(word.path, word.line, word.key.rpartition(".")[2]) for word in words}
    found = {}
    for setting in parties.settings:
        place = setting.path, setting.line
        if setting.reaches_workers and not setting.by_raylet and (*place, setting.name) not in from_overrides:
            value = SOME_TEXT if setting.value is None else setting.value
            found[setting.name] = Held(value, "the runtime_env", place)
    return found


def submitted(parties: Parties, shell: Table, job_vars: Mapping[str, Held]) -> Table:
    """Return a cluster-started driver's environment: a raylet's, overlaid by the job's `runtime_env`."""
    (first, *_), _ = bases(parties, shell, Start(Table(), address="auto"))
    driver = Table(first.environ)
    driver.open = bool(first.unknown)
    for name, held in _as_ray_sets(job_vars, first).items():
        driver.put(name, held.raw, held.place)
    return driver


def bases(parties: Parties, shell: Table, begun: Start) -> tuple[list[Base], str]:
    """Return the environments that workers inherit from, and the address of the job's cluster.

    The cluster is the one that the job joins; the address is "" if it starts its own.
    """
    if parties.starts_ray and begun.uses_ray and not parties.ray_address:
        given = [setting for setting in parties.settings if setting.by_raylet]
        return [Base(overlaid(parties.machine.environ, given), "the raylet")], ""
    at = "auto"  # the cluster passes its address to a driver that it starts
    if not begun.uses_ray:
        at = ""
    elif parties.ray_address:
        at = parties.ray_address
    elif not parties.submitted:
        at = address(begun.address, texts(begun.environ or shell), parties.machine)
    if not at:
        return [Base(begun.environ, "the driver")], ""
    known = () if isinstance(parties.raylets, Unknown) else joined(at, parties.raylets.running)
    found = []
    for raylet in known:
        environ = environ_of(raylet.pid, parties.machine)
        if environ is not None:
            found.append(Base(Table(inherited(environ)), "the raylet", raylet))
    if not found:
        why = f"no raylet of {at} is seen here" if at != "auto" else "no raylet is seen here"
        found.append(Base(Table(), "the raylet", unknown=why))
    cluster = found[0].raylet.cluster if at == "auto" and found[0].raylet else at
    return found, cluster


def worker(
    parties: Parties, job: Job | None, base: Base, begun: Start, job_vars: Mapping[str, Held]
) -> dict[str, Held]:
    """Return the environment that a training worker starts with, layer by layer."""
    found = {
        name: Held(value, _giver(base, name), base.environ.places.get(name, NOWHERE))
        for name, value in base.environ.items()
    }
    given = dict(job_vars)
    for name, value in begun.env_vars.items():
        place = begun.env_vars.places.get(name, NOWHERE)
        by: Decider = "verl" if place[0].endswith(".py") else "the runtime_env"
        given[name] = Held(value, by, place)
    found.update(_as_ray_sets(given, base))
    if job is not None:
        environ = Table({name: held.raw for name, held in found.items()})
        for addition in verl_environment.for_workers(job, environ):
            found[addition.name] = Held(addition.value, "verl", addition.place, _PER_WORKER)
    ray = parties.ray if begun.uses_ray else None
    for addition in ray_environment.for_workers(ray, tuple(found)) if ray is not None else ():
        found[addition.name] = Held(addition.value, "Ray", addition.place, _BY_RAY)
    nvidia = isinstance(parties.gpus, GpuKinds)
    for name, switch, place in devices_of_workers(ray, nvidia=nvidia) if ray is not None else ():
        forbidden = switch in found and found[switch].raw != "0"
        if not forbidden and (name in found or name in begun.environ):
            found[name] = Held(UNCLEAR, "Ray", place, _DEVICES, sure=False)
    return found


def _giver(base: Base, name: str) -> Decider:
    """Return the source of an inherited variable: verl's code may have changed the driver's environment."""
    return "verl" if base.environ.places.get(name, NOWHERE)[0].endswith(".py") else base.by


def _as_ray_sets(given: Mapping[str, Held], base: Base) -> dict[str, Held]:
    """Return the variables of a `runtime_env` as Ray sets them in a process that inherits from `base`.

    Ray sets them in order of their names, so that a value may refer to an earlier one: a `runtime_env`
    travels as JSON with sorted keys (`serialize` in ray/runtime_env/runtime_env.py).
    """
    known: dict[str, Any] = dict(base.environ)
    unseen = UNCLEAR if base.unknown else ""
    found = {}
    for name in sorted(given):
        raw = given[name].raw
        if isinstance(raw, str):
            all_known = all(isinstance(known.get(name, unseen), str) for name in named_in(raw))
            raw = expanded(raw, known) if all_known else SOME_TEXT
        found[name] = replace(given[name], raw=raw)
        known[name] = raw
    return found

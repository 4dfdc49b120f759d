"""Variables that verl sets for a job's processes, from its sources: passed to `ray.init` and to actors.

Nothing here depends on a release of verl. Its own code is followed (`python.follow`), with the job's
configuration and environment, from its main program to `ray.init`; then the functions that create workers and
rollout servers.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.variables.environment_writes import writes
from verl_doctor.toolkit.sources.hydra.lookup import UNDETERMINED
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow import Arrived, Follow
from verl_doctor.toolkit.sources.python.follow_values import Class, Function, Instance, Module, Place, Table
from verl_doctor.toolkit.sources.python.source import SourceTree, parse, read, walk

WORKERS, SERVERS = "training workers", "rollout servers"
_CREATES_WORKERS = "single_controller.ray.base"
_PLATFORMS = "plugin.platform"
_ENV_VARS = "env_vars"
_OF_THE_JOB = ("single_controller", "workers", "checkpoint_engine")
_ENGINES = ("fsdp", "megatron", "mindspeed", "torchtitan", "veomni", "automodel")
# Up to 0.5 a worker group was created in one long function; the name of the rollout has always had this
# suffix.
_ROLLOUT_FOLDER = "_rollout"


@dataclass(frozen=True)
class Job:
    """What decides which of verl's code runs. `rollout` and `strategy` are "" if unknown.

    `libraries` are the folders of other packages, whose constants verl reads. `capability` is the compute
    capability of the GPUs, `UNCLEAR` if unknown.
    """

    tree: SourceTree
    program: Path
    module: str
    configuration: Any = UNCLEAR
    rollout: str = "vllm"
    strategy: str = "fsdp"
    libraries: Mapping[str, Path] = field(default_factory=dict)
    capability: Any = UNCLEAR


@dataclass(frozen=True)
class ProcessVariable:
    """A variable that is set for some process: `value` is a text, `UNCLEAR`, or None if it is removed."""

    name: str
    value: Any
    place: Place
    to: str


@dataclass(frozen=True)
class Start:
    """The arguments of `ray.init` once the driver has reached it with this environment.

    `reached` is False if following the program did not reach `ray.init`; without `uses_ray` it does not even
    mention Ray.
    """

    environ: Table
    env_vars: Table = field(default_factory=Table)
    address: Any = None
    reached: bool = True
    uses_ray: bool = True


def start(job: Job, environ: Mapping[str, Any]) -> Start:
    """Follow the main program of the job to its `ray.init`."""
    found: list[tuple[Mapping[str, Any], Place]] = []

    def call(name: str, given: list[Any], words: Mapping[str, Any], place: Place) -> Any:
        if name == "ray.init":
            found.append((words, place))
            raise Arrived
        return _known(job, name, given, place)

    table = environ if isinstance(environ, Table) else Table(environ)
    follow = Follow(job.tree, table, call, lambda name: _outside(job, name), job.configuration)
    try:
        follow.module(job.tree.name)  # what `import verl` itself sets
        follow.program(job.program, job.module)
    except Arrived:
        words, place = found[0]
        return Start(table, _env_vars(words.get("runtime_env"), place), words.get("address"))
    return Start(table, reached=False, uses_ray=_mentions_ray(job.program))


def _mentions_ray(program: Path) -> bool:
    """Return whether the program mentions Ray: torchrun starts others, such as supervised fine-tuning."""
    source = read(program)
    return not isinstance(source, bytes) or re.search(rb"\bray\b|\brun_ppo\b", source) is not None


def for_workers(job: Job, environ: Table) -> Iterator[ProcessVariable]:
    """Yield what is set for the training workers when they are created.

    `environ` is the environment of the process that creates them, which is itself a worker.
    """
    yield from _created_in(job, f"{job.tree.name}.{_CREATES_WORKERS}", environ, WORKERS)


def for_servers(job: Job, environ: Table) -> Iterator[ProcessVariable]:
    """Yield what is set for the rollout servers when they are created; nothing if the rollout is unknown."""
    if not job.rollout:
        return
    folder = f"{job.tree.name}.workers.rollout.{job.rollout}{_ROLLOUT_FOLDER}"
    for path in job.tree.files(folder):
        if "server" in path.stem and (name := job.tree.name_of(path)):
            yield from _created_in(job, name, environ, SERVERS)


def while_running(job: Job) -> Iterator[ProcessVariable]:
    """Yield what verl's workers set in their own environment while they run, under constant names."""
    for write in writes(job.tree.folder, _OF_THE_JOB):
        path = Path(write.path).relative_to(job.tree.folder)
        if _concerns(path, job):
            value = None if write.removed else UNCLEAR if write.value is None else write.value
            to = ".".join(filter(None, (*path.with_suffix("").parts, write.within)))
            yield ProcessVariable(write.name, value, (write.path, write.line), to)


def configured(configuration: Configuration) -> Table:
    """Return the composed configuration as the program sees it; unknown values are unclear in it."""
    places = {
        override.key: (override.path, override.line)
        for override in configuration.overrides
        if override.fate == "applied"
    }

    def place(key: str) -> Place:
        file, _, line = configuration.origins.get(key, "").rpartition(":")
        defined = (os.path.join(configuration.folder, file), int(line)) if line.isdecimal() else ("", 0)  # noqa: PTH118 - 1,000 keys
        return places.get(key, defined)

    def seen(value: Any, key: str) -> Any:
        if isinstance(value, str) and "${" in value:
            value = configuration.get(key)
        if isinstance(value, Mapping):
            table = Table()
            for name, inner in value.items():
                below = f"{key}.{name}" if key else str(name)
                table.put(str(name), seen(inner, below), place(below))
            return table
        return (
            UNCLEAR if value is UNDETERMINED else list(value) if isinstance(value, (list, tuple)) else value
        )

    table: Table = seen(configuration.after, "")
    return table


def _known(job: Job, name: str, given: list[Any], place: Place) -> Any:
    """Return the results of functions whose sources cannot be followed."""
    last = name.rpartition(".")[2]
    if name == "ray.is_initialized":
        return False
    if last == "get_device_capability" and job.capability is not UNCLEAR:
        return list(job.capability)
    if last == "merge" and "OmegaConf" in name:
        merged = Table()
        for other in given:
            _merge(merged, other, place)
        return merged
    if last in ("create", "to_container") and "OmegaConf" in name and given:
        return given[0]
    if last == "select" and "OmegaConf" in name and len(given) > 1:
        return _selected(given[0], given[1])
    return UNCLEAR


def _outside(job: Job, name: str) -> Any:
    """Return a constant of another package; the source is read only for names that look like one."""
    module, _, last = name.rpartition(".")
    top = name.partition(".")[0]
    if top not in job.libraries or not (last.isupper() or module == "torch.version"):
        return UNCLEAR
    return _constants(job.libraries[top], top, module).get(last, UNCLEAR)


@functools.lru_cache(maxsize=64)
def _constants(folder: Path, package: str, module: str) -> Mapping[str, Any]:
    """Return the module-level constants."""
    file = SourceTree(folder, package).locate(module)
    source = read(file.path) if file is not None and file.kind in ("module", "package") else None
    tree = parse(source, file.path) if isinstance(source, bytes) and file is not None else None
    found = {}
    for node in tree.body if isinstance(tree, ast.Module) else ():
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value))
            ):
                found[name] = value
    return found


def _selected(table: Any, key: Any) -> Any:
    """Evaluate `OmegaConf.select`: None if there is no such key."""
    for step in str(key).split("."):
        if not isinstance(table, Table):
            return UNCLEAR if table is UNCLEAR else None
        table = table.get(step, UNCLEAR if table.open else None)
    return table


def _merge(into: Table, other: Any, place: Place) -> None:
    """Merge like `OmegaConf.merge`: later values win, and dictionaries are merged recursively."""
    if not isinstance(other, Table):
        other = Table()
        other.open = True
    into.open = into.open or other.open
    for key, inner in into.items():
        if other.open and isinstance(inner, Table):
            into.put(key, Table(inner), into.places.get(key, place))
            into[key].open = True
    for key, value in other.items():
        inner = into.get(key)
        if isinstance(inner, Table) and isinstance(value, Table):
            copy = Table(inner)
            _merge(copy, value, place)
            into.put(key, copy, place)
        else:
            into.put(key, value, other.places.get(key, place))


def _env_vars(runtime_env: Any, place: Place) -> Table:
    """Return the variables of a `runtime_env`."""
    if not isinstance(runtime_env, Table):
        unknown = Table()
        unknown.open = runtime_env is not None
        return unknown
    found = runtime_env.get(_ENV_VARS)
    if isinstance(found, Table):
        return found
    return _env_vars(UNCLEAR if found is not None or runtime_env.open else None, place)


def _created_in(job: Job, name: str, environ: Table, to: str) -> Iterator[ProcessVariable]:
    """Follow a module's functions that mention `env_vars`, and yield what each sets for actors it creates."""
    found: list[ProcessVariable] = []

    def call(called: str, given: list[Any], words: Mapping[str, Any], place: Place) -> Any:
        if called.rpartition(".")[2] == "get_platform":
            return _platform(follow, job)
        for options in (Table(words), *given):
            runtime_env = options.get("runtime_env") if isinstance(options, Table) else None
            table = runtime_env.get(_ENV_VARS) if isinstance(runtime_env, Table) else None
            if isinstance(table, Table):
                found.extend(
                    ProcessVariable(key, value, table.places[key], to) for key, value in table.items()
                )
        return _known(job, called, given, place)

    follow = Follow(job.tree, Table(environ), call, lambda outside: _outside(job, outside))
    module = follow.module(name)
    lines = _lines_with(_ENV_VARS, module.path) if module is not None else []
    for function in _functions(module) if module is not None and lines else ():
        # Checking its lines first avoids walking most functions.
        if _spans(function.node, lines) and any(
            isinstance(node, ast.Constant) and node.value == _ENV_VARS for node in walk(function.node)
        ):
            follow.environ.clear()
            follow.environ.update(environ)
            follow.call(function)
    yield from dict.fromkeys(found)


def _lines_with(text: str, path: Path) -> list[int]:
    """Return the numbers of a source's lines that contain this text."""
    source = read(path)
    lines = source.splitlines() if isinstance(source, bytes) else ()
    return [number for number, line in enumerate(lines, 1) if text.encode() in line]


def _spans(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Iterable[int]) -> bool:
    """Return whether one of these lines belongs to a function or to its decorators."""
    first = min(part.lineno for part in (node, *node.decorator_list))
    return any(first <= line <= (node.end_lineno or first) for line in lines)


def _functions(module: Module) -> Iterator[Function]:
    """Yield the functions of a module, and the methods of its classes."""
    for value in tuple(module.names.values()):
        if isinstance(value, Function) and value.module is module:
            yield value
        elif isinstance(value, Class) and value.module is module:
            for node in value.node.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield Function(node, module)


def _platform(follow: Follow, job: Job) -> Any:
    """Return the object for the kind of accelerator: the class that is registered under its name."""
    name = follow.environ.get("VERL_PLATFORM") or (
        "amd" if isinstance(_outside(job, "torch.version.hip"), str) else "nvidia"
    )
    for path in job.tree.files(f"{job.tree.name}.{_PLATFORMS}"):
        source = read(path)
        if isinstance(source, bytes) and f'"{name}"'.encode() in source:
            module = follow.module(job.tree.name_of(path) or "")
            for value in module.names.values() if module else ():
                if isinstance(value, Class) and _is_registered(value.node, name):
                    return Instance(value)
    return UNCLEAR


def _is_registered(node: ast.ClassDef, name: str) -> bool:
    return any(
        isinstance(inner, ast.Constant) and inner.value == name
        for decorator in node.decorator_list
        for inner in walk(decorator)
    )


def _concerns(path: Path, job: Job) -> bool:
    """Return whether a file may be part of this job, and not of a job with another engine or rollout."""
    for part in path.with_suffix("").parts:
        if part.endswith(_ROLLOUT_FOLDER) and job.rollout and part != f"{job.rollout}{_ROLLOUT_FOLDER}":
            return False
        named = [engine for engine in _ENGINES if part.startswith(engine)]
        if named and job.strategy and not job.strategy.startswith(tuple(named)):
            return False
    return True

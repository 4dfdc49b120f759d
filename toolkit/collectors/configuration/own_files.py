"""The user's files named by the job: whether they exist, are valid Python, and define what is imported."""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.beside import beside
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.reward_function import module_names
from verl_doctor.toolkit.collectors.configuration.roles import has_external_module
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import (
    Launch,
    changes_folder,
    folder_of,
    load_text,
    may_be_changed,
    may_be_made,
    written_by,
)
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.python.bound import lasting
from verl_doctor.toolkit.sources.python.source import Unreadable, parse, read
from verl_doctor.toolkit.text import listed

Trouble = Literal["missing", "no Python", "no such name", "no data set", "contents", "no path", "no name"]

_DATASET = "data.custom_cls"
_SAMPLER = "trainer.v1.sampler.custom_sampler"
_OF_A_DATA_SET = frozenset({"__len__", "__getitem__"})  # all that a fine-tuning job uses of a data set
_CALLBACK, _PATH = "trainer.checkpoint_callback_class", "PYTHONPATH"
_RESUME = "trainer.resume_from_path"
_CHECKPOINTS = "trainer.default_local_dir"
_TRACKER = "latest_checkpointed_iteration.txt"
_CONTENTS = ("checkpoint.load_contents", "actor_rollout_ref.actor.checkpoint.load_contents")
_STRATEGY = ("engine.strategy", "actor_rollout_ref.actor.strategy")
# A shard of FSDP's, of which each process loads its own.
_SHARD = re.compile(r"(\w+)_world_size_(\d+)_rank_\d+\.pt")
# What verl saves of each of the contents (verl/utils/checkpoint/fsdp_checkpoint_manager.py).
_PARTS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
_MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
# Files that are read whenever they are set, and when.
_NAMED: tuple[tuple[str, Phase], ...] = (
    (f"{_MULTI_TURN}.tool_config_path", "first batch"),
    (f"{_MULTI_TURN}.function_tool_path", "first batch"),
    (f"{_MULTI_TURN}.interaction_config_path", "first batch"),
    ("actor_rollout_ref.rollout.agent.agent_loop_config_path", "first batch"),
    ("reward.custom_reward_function.path", "first batch"),
    ("custom_reward_function.path", "first batch"),
)
# Tools are described in YAML under one key, or written in Python under another.
_OTHER_KIND = {
    f"{_MULTI_TURN}.tool_config_path": (f"{_MULTI_TURN}.function_tool_path", ".py"),
    f"{_MULTI_TURN}.function_tool_path": (f"{_MULTI_TURN}.tool_config_path", ".yaml"),
}
_VARIABLES = "ray_kwargs.ray_init.runtime_env.env_vars"
# Commands that may set variables in the shell.
_SETS_VARIABLES = re.compile(r"\b(?:module|spack|conda|mamba|micromamba)\s+(?:load|activate)\b|\bdirenv\b")
_REWARDS = ("reward.custom_reward_function.path", "custom_reward_function.path")


@dataclass(frozen=True)
class OwnFile:
    """A file or folder under a `key`, what is wrong with it, and when the job reaches it.

    `error` is the parser's message, `name` what it lacks. For a file with wrong "contents", `error` is what
    it has or lacks, after its name. `beside` is the only file of that name, or a similar name, that may have
    been meant; `instead` is the key under which it belongs, "" for the same. `near` is the class of the file
    that the name may mean.
    """

    key: str
    path: str
    trouble: Trouble
    phase: Phase
    name: str = ""
    error: str = ""
    beside: str = ""
    instead: str = ""
    near: str = ""


@dataclass(frozen=True)
class OwnFiles:
    """The files with a definite error."""

    files: tuple[OwnFile, ...] = ()


@collector(kept=True)
def own_files(
    configuration: Configuration,
    launch: Launch,
    machine: Machine,
    interpreter: Interpreter | Unknown,
    processes: JobProcesses | Unknown,
) -> OwnFiles | Unknown:
    """Check each file that the job names, as Python resolves it: from the current folder, `~` unexpanded."""
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    here = not changes_folder(launch)
    count = _processes(configuration, processes)
    found = _found(configuration, folder_of(launch, machine.cwd), (launch, machine), count, here=here)
    readable = not isinstance(interpreter, Unknown) and _is_older(interpreter.version)
    return OwnFiles(tuple(own_file for own_file in found if readable or own_file.trouble != "no Python"))


def _is_older(version: str) -> bool:
    """Return whether this Python supports all the syntax of the job's Python."""
    steps = version.split(".")
    return all(step.isdigit() for step in steps[:2]) and tuple(map(int, steps[:2])) <= sys.version_info[:2]


def _found(
    configuration: Configuration, cwd: Path, around: tuple[Launch, Machine], count: int | None, *, here: bool
) -> Iterator[OwnFile]:
    written = written_by(around[0])
    for key, phase in _NAMED:
        yield from _no_path(configuration, key, phase)
        path = _path(configuration, key, cwd, here=here)
        if path is None:
            continue
        if (place := os.path.normpath(path)) in written:
            yield from _of_script(configuration, key, phase, path, written[place], around)
            continue
        if not os.path.exists(path):
            if key not in _REWARDS:  # reported by CFG122
                near, instead = _meant(configuration, key, path, cwd)
                yield OwnFile(key, str(path), "missing", phase, beside=near, instead=instead)
            continue
        tree = _parsed(path) if path.suffix == ".py" else None
        if isinstance(tree, str):
            yield OwnFile(key, str(path), "no Python", phase, error=tree)
        elif problem := next(_problems(configuration, key, path, tree, around), ""):
            yield OwnFile(key, str(path), "contents", phase, error=problem)
        elif key in _REWARDS and tree is not None and (problem := _without_a_mean(configuration, key, tree)):
            yield OwnFile(key, str(path), "contents", "first validation", error=problem)
    if configuration.get("trainer.resume_mode") == "resume_path":
        folder = _path(configuration, _RESUME, cwd, here=here)
        if folder is not None and not os.path.exists(folder):
            ppo = configuration.has("actor_rollout_ref")  # its trainer reads it once the engine is up
            yield OwnFile(_RESUME, str(folder), "missing", "engine" if ppo else "workers")
        elif folder is not None and not may_be_changed(around[0], os.path.normpath(folder)):
            yield from _of_other_contents(configuration, count, _RESUME, folder)
        if configuration.get(_RESUME) is None and not configuration.has("actor_rollout_ref"):
            yield OwnFile(_RESUME, "null", "no path", "workers")
    yield from _last_checkpoint(configuration, cwd, around[0], count, here=here)
    yield from _callback(configuration, cwd, around)
    yield from (
        own_file
        for find in (_data_set, _sampler)
        for own_file in find(configuration, cwd, here=here)
        if os.path.normpath(own_file.path) not in written
    )


def _of_script(
    configuration: Configuration,
    key: str,
    phase: Phase,
    path: Path,
    text: str | None,
    around: tuple[Launch, Machine],
) -> Iterator[OwnFile]:
    """Check a file that the script writes first, whatever lies there now."""
    if text is None or path.suffix != ".py":
        return
    source = text.encode()
    tree = parse(source, path)
    if isinstance(tree, ast.Module):
        problems = itertools.chain(
            _contents(configuration, key, path, tree, folder_of(around[0], around[1].cwd)),
            _breaks(configuration, key, tree, source, around),
        )
        if problem := next(problems, ""):
            yield OwnFile(key, str(path), "contents", phase, error=problem)
    elif tree.by == "syntax":
        yield OwnFile(key, str(path), "no Python", phase, error=tree.reason.removeprefix(f"{path} "))


def _problems(
    configuration: Configuration,
    key: str,
    path: Path,
    tree: ast.Module | None,
    around: tuple[Launch, Machine],
) -> Iterator[str]:
    """Errors in the contents of an existing file, and those that its code is certain to raise.

    `tree` is that of a Python file.
    """
    launch, machine = around
    yield from _contents(configuration, key, path, tree, folder_of(launch, machine.cwd))
    source = read(path)
    if tree is not None and isinstance(source, bytes):
        yield from _breaks(configuration, key, tree, source, around)


def _breaks(
    configuration: Configuration, key: str, tree: ast.Module, source: bytes, around: tuple[Launch, Machine]
) -> Iterator[str]:
    """Errors that a Python file's code is certain to raise, when imported or when its function is called."""
    from verl_doctor.toolkit.collectors.configuration import own_calls, own_code, own_reward  # noqa: PLC0415 - only where a job names such a file

    launch, machine = around
    given = configuration.get(_VARIABLES)
    names = {setting.name for setting in launch.settings if not setting.removed} | set(machine.environ)
    names |= set(map(str, given)) if isinstance(given, Mapping) else set()
    texts = [load_text(file) or "" for file, _ in launch.files]
    # Workers may have the variables and files of other nodes.
    outside = "RAY_ADDRESS" in names or bool(launch.ray_starts)
    prepares = has_external_module(configuration) or "VERL_USE_EXTERNAL_MODULES" in names
    unsure = bool(launch.unread) or any(_SETS_VARIABLES.search(text) for text in texts) or outside or prepares
    cwd = folder_of(launch, machine.cwd)
    called = key in _REWARDS and own_reward.scores_rows(configuration)
    name = configuration.get(f"{key.removesuffix('.path')}.name") if called else ""
    if isinstance(name, str) and name and own_reward.calls_in_a_thread(configuration):
        yield from own_calls.refused_in_a_thread(tree, name)
        yield from own_calls.remembered(tree, name)
    yield from own_code.breaks(
        tree,
        source.decode("utf-8", "replace"),
        name if isinstance(name, str) else "",
        lambda variable: unsure or variable in names,
        lambda file: (
            outside
            or prepares
            or os.path.exists(cwd / file)
            or may_be_made(launch, os.path.normpath(cwd / file))
        ),
    )


def _without_a_mean(configuration: Configuration, key: str, tree: ast.Module) -> str:
    from verl_doctor.toolkit.collectors.configuration import own_reward  # noqa: PLC0415 - only where a job names such a file

    return next(own_reward.details(configuration, key.removesuffix(".path"), tree), "")


def _no_path(configuration: Configuration, key: str, phase: Phase) -> Iterator[OwnFile]:
    value = configuration.get(key)
    if value and isinstance(value, (bool, int, float, list, Mapping)):
        yield OwnFile(key, str(value), "no path", phase)


def _meant(configuration: Configuration, key: str, path: Path, cwd: Path) -> tuple[str, str]:
    """Return the nearby file that may have been meant, and the key where it belongs if that is another."""
    near = beside(path, (cwd,))
    other, suffix = _OTHER_KIND.get(key, ("", ""))
    twin = path.with_suffix(suffix) if suffix else path
    if near or not other or configuration.get(other) is not None or not os.path.isfile(twin):
        return near, ""
    return str(twin), other


def _last_checkpoint(
    configuration: Configuration, cwd: Path, launch: Launch, count: int | None, *, here: bool
) -> Iterator[OwnFile]:
    """Check the file that names the last checkpoint, and that checkpoint's folder.

    A resuming job reads the file as a number.
    """
    folder = _path(configuration, _CHECKPOINTS, cwd, here=here)
    if configuration.get("trainer.resume_mode") != "auto" or folder is None:
        return
    tracker = folder / _TRACKER
    if may_be_changed(launch, os.path.normpath(tracker)):
        return
    content = read(tracker) if os.path.isfile(tracker) else b"0"
    text = content.decode("utf-8", "replace").strip() if isinstance(content, bytes) else "0"
    ppo = configuration.has("actor_rollout_ref")  # its trainer reads it once the engine is up
    phase: Phase = "engine" if ppo else "workers"
    try:
        step = int(text)
    except ValueError:
        problem = f"contains {text[:40]!r} instead of the number of a step"
        yield OwnFile(_CHECKPOINTS, str(tracker), "contents", phase, error=problem)
        return
    last = folder / f"global_step_{step}"
    if may_be_changed(launch, os.path.normpath(last)):
        return
    if ppo and step and os.path.isdir(last) and not os.path.isdir(last / "actor"):
        yield OwnFile(_CHECKPOINTS, str(last), "contents", phase, error="has no folder actor to resume from")
    elif step:
        yield from _of_other_contents(configuration, count, _CHECKPOINTS, last)


def _of_other_contents(
    configuration: Configuration, count: int | None, key: str, folder: Path
) -> Iterator[OwnFile]:
    """Check that a checkpoint has what the job loads, for its number of processes, if `count` is known."""
    ppo = configuration.has("actor_rollout_ref")
    place, contents = folder / "actor" if ppo else folder, configuration.get(_CONTENTS[ppo])
    if count is None or not isinstance(contents, list) or not os.path.isdir(place):
        return
    shards = [shard for path in place.iterdir() if (shard := _SHARD.fullmatch(path.name))]
    counts = sorted({int(shard[2]) for shard in shards if shard[1] == "model" and "model" in contents})
    saved_parts = {shard[1] for shard in shards}
    lacking = [name for name in contents if name in _PARTS and _PARTS[name] not in saved_parts]
    phase: Phase = "engine" if ppo else "workers"
    if counts and count not in counts:
        saved = " or ".join(map(str, counts))
        error = f"has shards for {saved} processes, but the job has {count}"
        yield OwnFile(key, str(place), "contents", phase, error=error)
    elif lacking and (counts or configuration.get(_STRATEGY[ppo]) in ("fsdp", "fsdp2")):
        error = f"has no shards of {listed(lacking, 3)}, which {_CONTENTS[ppo]} names"
        yield OwnFile(key, str(place), "contents", phase, error=error)


def _processes(configuration: Configuration, processes: JobProcesses | Unknown) -> int | None:
    """Return how many processes share the model; None if that is unknown."""
    if configuration.program.endswith("/trainer/main_ppo.py"):
        if configuration.get("trainer.v1.trainer_mode") not in ("sync", MISSING):
            return None  # some of the GPUs only generate
        nodes, gpus = (configuration.number(f"trainer.{name}") for name in ("nnodes", "n_gpus_per_node"))
        return int(nodes * gpus) if nodes and gpus else None
    if not configuration.program.endswith("/sft_trainer.py") or isinstance(processes, Unknown):
        return None
    return processes.world_size({"nnodes": "1"})


def _contents(
    configuration: Configuration, key: str, path: Path, tree: ast.Module | None, cwd: Path
) -> Iterator[str]:
    from verl_doctor.toolkit.collectors.configuration import own_contents, own_reward  # noqa: PLC0415 - only where a job names such a file

    if key.endswith(".agent_loop_config_path"):
        yield from own_contents.agent_loops(configuration, path, (cwd,))
    elif key.endswith(".tool_config_path"):
        before, inside, _ = configuration.program.rpartition("/verl/")
        yield from own_contents.tools(path, (cwd,), Path(before, "verl") if inside else None)
    elif key.endswith(".function_tool_path") and tree is not None:
        yield from own_contents.function_tools(tree)
    elif key in _REWARDS and tree is not None:
        yield from own_reward.reward(configuration, key.removesuffix(".path"), tree)


def _data_set(configuration: Configuration, cwd: Path, *, here: bool) -> Iterator[OwnFile]:
    def problems(path: Path, name: str, tree: ast.Module) -> Iterator[OwnFile]:
        return _of_data_set(configuration, path, name, tree)

    path, name, tree = yield from _class_of(configuration, _DATASET, cwd, here=here, problems=problems)
    if path and tree:
        yield from problems(path, name, tree)


def _of_data_set(configuration: Configuration, path: Path, name: str, tree: ast.Module) -> Iterator[OwnFile]:
    """Yield why verl cannot use this class as its data set."""
    node = lasting(tree).get(name)
    if not isinstance(node, ast.ClassDef):
        return
    if not (node.bases or node.keywords or node.decorator_list):
        methods = {getattr(part, "name", "") for part in node.body}
        if configuration.has("actor_rollout_ref") or not methods >= _OF_A_DATA_SET:
            yield OwnFile(f"{_DATASET}.name", str(path), "no data set", "workers", name)
        return
    from verl_doctor.toolkit.collectors.configuration import own_data_set  # noqa: PLC0415 - only where a job names such a file

    for problem in own_data_set.constructor(tree, name, Path(configuration.program)):
        yield OwnFile(f"{_DATASET}.path", str(path), "contents", "workers", name, problem)


def _callback(configuration: Configuration, cwd: Path, around: tuple[Launch, Machine]) -> Iterator[OwnFile]:
    """Check the class that verl's newer trainers call when they have saved a checkpoint."""
    target, every = configuration.get(_CALLBACK), configuration.number("trainer.save_freq")
    before, inside, _ = configuration.program.rpartition("/verl/trainer/main_ppo")
    is_called = inside and configuration.get("trainer.use_v1") is True and every is not None and every > 0
    if not is_called or not isinstance(target, str):
        return
    from verl_doctor.toolkit.collectors.configuration import own_contents  # noqa: PLC0415 - only where a job names such a class

    launch, machine = around
    given = [setting.value for setting in launch.settings if setting.name == _PATH and setting.value]
    entries = os.pathsep.join([*given, machine.environ.get(_PATH, "")]).split(os.pathsep)
    folders = [cwd, *(cwd / entry for entry in entries if entry and "$" not in entry)]
    for path, problem in own_contents.checkpoint_callback(target, Path(before, "verl"), folders):
        yield OwnFile(_CALLBACK, str(path), "contents", "checkpoint", error=problem)


def _sampler(configuration: Configuration, cwd: Path, *, here: bool) -> Iterator[OwnFile]:
    """Check the class replacing the trainer's buffer: verl takes its own unless both settings are given."""
    is_read = (
        configuration.program.endswith("/trainer/main_ppo.py") and configuration.get("trainer.use_v1") is True
    )
    if is_read and configuration.get(f"{_SAMPLER}.name") and configuration.get(f"{_SAMPLER}.path"):
        yield from _class_of(configuration, _SAMPLER, cwd, here=here)


def _class_of(
    configuration: Configuration,
    section: str,
    cwd: Path,
    *,
    here: bool,
    problems: Callable[[Path, str, ast.Module], Iterator[OwnFile]] = lambda *_: iter(()),
) -> Generator[OwnFile, None, tuple[Path | None, str, ast.Module | None]]:
    """Yield what is wrong with a class's file; return file, name and syntax tree.

    A section names the class by its path and name. A class that has `problems` is not proposed instead.
    """
    path, name = _path(configuration, f"{section}.path", cwd, here=here), configuration.get(f"{section}.name")
    yield from _no_path(configuration, f"{section}.path", "workers")
    if path is None:
        return None, "", None
    if not os.path.exists(path):
        yield OwnFile(f"{section}.path", str(path), "missing", "workers", beside=beside(path, (cwd,)))
        return path, "", None
    tree = _parsed(path)
    if isinstance(tree, str):
        yield OwnFile(f"{section}.path", str(path), "no Python", "workers", error=tree)
    elif name is None:
        yield OwnFile(f"{section}.name", str(path), "no name", "workers")
    elif isinstance(tree, ast.Module) and isinstance(name, str):
        names = module_names(tree)
        if names is not None and name not in names:
            usable = (other for other in _near(name, tree) if next(problems(path, other, tree), None) is None)
            near = next(usable, "")
            yield OwnFile(f"{section}.name", str(path), "no such name", "workers", name, near=near)
        return path, name, tree
    return path, "", None


def _near(name: str, tree: ast.Module) -> list[str]:
    """Return the classes of a similar name, the most similar first, or the only class of a file."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    near = difflib.get_close_matches(name, classes)
    return near or (classes if len(classes) == 1 else [])


def _path(configuration: Configuration, key: str, cwd: Path, *, here: bool) -> Path | None:
    """Return the requested path; None if there is none, or it depends on another folder or machine."""
    value = configuration.get(key)
    if not isinstance(value, str) or not value or "://" in value or "${" in value:
        return None
    return cwd / value if here or value.startswith("/") else None


def _parsed(path: Path) -> ast.Module | str | None:
    """Return the syntax tree of a file, the parser's message, or None if it cannot be read."""
    content = read(path)
    if isinstance(content, Unreadable):
        return None
    tree = parse(content, path)
    if isinstance(tree, ast.Module):
        return tree
    return tree.reason.removeprefix(f"{path} ") if tree.by == "syntax" else None

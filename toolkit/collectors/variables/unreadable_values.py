"""Values of variables that Python, verl, vLLM or Ray cannot parse.

They are a word in place of a number, or an invalid choice.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.result_cache import remembered
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Phase

_USUAL = re.compile(r"[01]?")  # accepted by every conversion
# Variables that only the engine for processors reads, its version's end, and those that its platform sets
# itself.
_OF_CPUS, _CPU_BUILD = "VLLM_CPU_", "+cpu"
_SET_BY_PLATFORM = re.compile(rb"^\s*os\.environ\[\"(VLLM_\w+)\"\] = ", re.MULTILINE)
_TABLE = "environment_variables"
_CONSTANTS = ("_private/ray_constants.py", "_common/constants.py", "_private/services.py")
# Ray's C++ side reads RAY_<name of an entry of its table> and aborts if a number does not parse completely
# (src/ray/common/ray_config.h). The types are compiled; these endings belong to numbers.
_ENTRY = re.compile(
    r"RAY_[a-z]\w*_(?:ms|s|secs?|seconds|milliseconds|bytes|mb|size|threshold|interval|percentage"
    r"|fraction|ratio|retries|attempts|count|limit|num|workers|port|connections)"
)
# Values with which the interpreter itself stops before it runs anything
# (https://docs.python.org/3/using/cmdline.html#environment-variables).
_OF_PYTHON: Mapping[str, tuple[re.Pattern[str], str, str]] = {
    "PYTHONHASHSEED": (
        re.compile(r"random|0*\d{1,10}"),
        'PYTHONHASHSEED must be "random" or an integer',
        "random or a number",
    ),
    "PYTHONUTF8": (re.compile("[01]"), "invalid PYTHONUTF8 environment variable value", "0 or 1"),
    "PYTHONMALLOC": (
        re.compile("default|debug|malloc(_debug)?|pymalloc(_debug)?|mimalloc(_debug)?"),
        "unknown PYTHONMALLOC allocator",
        "default, debug, malloc or pymalloc",
    ),
    "PYTHONTRACEMALLOC": (re.compile(r"0*\d{1,5}"), "invalid number of frames", "a number below 65536"),
    "PYTHONINTMAXSTRDIGITS": (
        re.compile(r"0*(?:0|6[4-9]\d|[7-9]\d\d|\d{4,9})"),
        "invalid value of PYTHONINTMAXSTRDIGITS",
        "0 or a number from 640",
    ),
}
_HOME = "PYTHONHOME"
# torch sets this level when torch.distributed is imported (torch/csrc/distributed/c10d/debug.cpp).
_DEBUG, _DEBUG_LEVELS = "TORCH_DISTRIBUTED_DEBUG", frozenset({"OFF", "INFO", "DETAIL"})
# torch reads these names of its loggers, and of modules, when it is imported (torch/_logging).
_LOGS, _REGISTERED = "TORCH_LOGS", re.compile(rb"""\bregister_(?:log|artifact)\(\s*["'](\w+)["']""")
_OF_LOGS = re.compile(r"[+-]?(\w+)")
_ALL_LOGS = "all"
_LEVELS = frozenset({"CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET"})
_LEVEL_NAMES = "DEBUG, INFO, WARN, WARNING, ERROR, CRITICAL or FATAL, in capitals"
_A_NUMBER = "a number without a unit"
_LEVEL = re.compile(rb"""\.setLevel\(os\.(?:getenv|environ\.get)\(\s*["'](VERL_\w+)["']""")
_EVERYWHERE = 5  # so many of verl's modules read a level that some of them are imported by every job
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class UnreadableValue:
    """A variable, the program that reads it at `read_from`, and the error.

    `phase` is how far the job has then come, `accepted` states the values that the program takes, "" if
    nothing is known of them but the error.
    """

    name: str
    program: str
    read_from: str
    text: str
    phase: Phase
    accepted: str = ""


@dataclass(frozen=True)
class UnreadableValues:
    """The unreadable values of the job's variables."""

    values: tuple[UnreadableValue, ...] = ()


@collector(timeout=10, kept=True)
def unreadable_values(
    job: JobVariables,
    verl: VerlTrees | Unknown,
    vllm: VllmTree | Unknown,
    interpreter: Interpreter | Unknown,
    machine: Machine,
    launch: Launch | Unknown,
) -> UnreadableValues | Unknown:
    """Evaluate the conversions in the sources with the job's values."""
    given = {name: value for name, value in job.values.items() if not _USUAL.fullmatch(value)}
    of_vllm = {name: value for name, value in given.items() if name.startswith("VLLM_")}
    of_ray = {name: value for name, value in given.items() if name.startswith("RAY_")}
    levels = {name: value for name, value in given.items() if name.startswith("VERL_")}
    found = list(_in_python(given))
    if _LOGS in given and not isinstance(interpreter, Unknown):
        own = [str(machine.cwd), *given.get("PYTHONPATH", "").split(os.pathsep)]
        found += _in_logs(given[_LOGS], interpreter.sys_path, [folder for folder in own if folder])
    if levels and not isinstance(verl, Unknown):
        command = None if isinstance(launch, Unknown) else launch.command
        found += _in_verl(Path(verl.imported.folder), levels, command.module if command else "")
    if of_vllm and not isinstance(vllm, Unknown):
        path = Path(vllm.tree.folder, "envs.py")
        if _CPU_BUILD not in vllm.tree.version:
            of_vllm = {name: value for name, value in of_vllm.items() if not name.startswith(_OF_CPUS)}
        else:
            replaced = _replaced_on_cpus(Path(vllm.tree.folder, "platforms/cpu.py"))
            of_vllm = {name: value for name, value in of_vllm.items() if name not in replaced}
        table = remembered(
            UnreadableValues, sorted(of_vllm.items()), [path], partial(_in_vllm, path, of_vllm)
        )
        found += () if isinstance(table, Unknown) else table.values
    if of_ray:
        found += _in_entries(of_ray)
        if not isinstance(interpreter, Unknown):
            folder = next(
                (Path(entry, "ray") for entry in interpreter.sys_path if os.path.isdir(Path(entry, "ray"))),
                None,
            )
            found += _in_ray(folder, of_ray) if folder else ()
    return UnreadableValues(tuple(found))


def _in_python(given: Mapping[str, str]) -> Iterator[UnreadableValue]:
    """Check what the interpreter reads before it runs anything, and torch when it is imported."""
    for name, (takes, text, accepted) in _OF_PYTHON.items():
        if name in given and not takes.fullmatch(given[name]):
            yield UnreadableValue(
                name, "Python", "the interpreter", f"Fatal Python error: {text}", "import", accepted
            )
    if given.get(_DEBUG, "OFF").upper() not in _DEBUG_LEVELS:
        text = f"ValueError: The value of {_DEBUG} must be OFF, INFO, or DETAIL."
        yield UnreadableValue(_DEBUG, "torch", "torch.distributed", text, "import", "OFF, INFO or DETAIL")
    home = given.get(_HOME, "").partition(os.pathsep)[0]
    if home.startswith("/") and "$" not in home and not any(Path(home).glob("lib*/python*/encodings")):
        text = "ModuleNotFoundError: No module named 'encodings'"
        yield UnreadableValue(_HOME, "Python", "the interpreter", text, "import")


def _in_logs(given: str, folders: Sequence[str], own: Sequence[str]) -> Iterator[UnreadableValue]:
    """Check the names of loggers: one that torch does not have must be a module."""
    path = next(
        (
            path
            for entry in folders
            if os.path.isfile(path := Path(entry, "torch/_logging/_registrations.py"))
        ),
        None,
    )
    source = path.read_bytes() if path is not None else b""
    registered = {name.decode() for name in _REGISTERED.findall(source)}
    names = [_OF_LOGS.fullmatch(part.strip()) for part in given.split(",")]
    if not registered or not all(names):
        return
    for name in (match[1] for match in names if match):
        is_module = name in sys.builtin_module_names or any(
            any(Path(folder).glob(pattern)) for folder in (*own, *folders) for pattern in (name, f"{name}.*")
        )
        if name not in registered and name != _ALL_LOGS and not is_module:
            text = f"ValueError: Invalid log settings: {given}"
            yield UnreadableValue(_LOGS, "torch", str(path), text, "import")
            return


def _in_verl(folder: Path, given: Mapping[str, str], program: str) -> Iterator[UnreadableValue]:
    """Check the levels of logging that verl's modules set when they are imported.

    `program` is the module that the job starts, "" if it is none of verl's or unknown.
    """
    from verl_doctor.toolkit.sources.python.source import read  # noqa: PLC0415 - only where such variables are set

    for name, value in given.items():
        if value in _LEVELS or not name.endswith("_LEVEL"):
            continue
        sources = ((path, read(path)) for path in sorted(folder.rglob("*.py")))
        readers = [
            path
            for path, source in sources
            if isinstance(source, bytes) and name.encode() in _LEVEL.findall(source)
        ]
        started = folder.joinpath(*program.split(".")[1:]).with_suffix(".py")
        if len(readers) >= _EVERYWHERE or (program.startswith("verl.") and started in readers):
            yield UnreadableValue(
                name,
                "verl",
                str(readers[0]),
                f"ValueError: Unknown level: '{value}'",
                "import",
                _LEVEL_NAMES,
            )


def _replaced_on_cpus(platform: Path) -> frozenset[str]:
    """Return the variables that vLLM's platform of processors sets itself before the engine reads them."""
    source = platform.read_bytes() if os.path.isfile(platform) else b""
    return frozenset(name.decode() for name in _SET_BY_PLATFORM.findall(source))


def _in_vllm(path: Path, given: Mapping[str, str]) -> UnreadableValues:
    """Check the entries of vLLM's table of variables: every process of the engine evaluates all of them."""
    from verl_doctor.toolkit.sources.python.definitions import (  # noqa: PLC0415 - only where such variables are set
        FunctionNode,
        Module,
    )
    from verl_doctor.toolkit.sources.python.refusals.follower import Follower  # noqa: PLC0415
    from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError, RefusedError  # noqa: PLC0415
    from verl_doctor.toolkit.sources.python.source import SourceTree, parse, read  # noqa: PLC0415

    source = read(path)
    tree = parse(source, path) if isinstance(source, bytes) else None
    found: list[UnreadableValue] = []
    if not isinstance(tree, ast.Module):
        return UnreadableValues()
    for name, entry in _entries(tree):
        if name not in given:
            continue
        follower = Follower(
            [SourceTree(path.parent, "vllm")],
            lambda _: None,
            variable=given.get,
            modules={"vllm.envs": Module("vllm.envs", path, tree)},
        )
        try:
            value = follower.expression(entry.body if isinstance(entry, ast.Lambda) else entry, "vllm.envs")
            if isinstance(value, FunctionNode):
                follower.call(value, (), {})
        except RefusedError as error:
            text = f"{error.refusal.raised}: {error.refusal.text}"
            found.append(UnreadableValue(name, "vLLM", f"{path}:{entry.lineno}", text, "engine"))
        except (NotFollowedError, RecursionError):
            continue
    return UnreadableValues(tuple(found))


def _entries(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for part in tree.body:
        match part:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys, values=values))
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values))
            ) if name == _TABLE:
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value


def _in_entries(given: Mapping[str, str]) -> Iterator[UnreadableValue]:
    for name, value in given.items():
        if _ENTRY.fullmatch(name) and not _NUMBER.fullmatch(value):
            text = f'Check failed: Cannot parse "{value}"'
            yield UnreadableValue(name, "Ray", "ray_config.h", text, "ray", _A_NUMBER)


def _in_ray(folder: Path, given: Mapping[str, str]) -> Iterator[UnreadableValue]:
    """Check `int(os.environ.get(NAME, ...))` executed when Ray's modules are imported."""
    from verl_doctor.toolkit.sources.python.source import dotted, parse, read  # noqa: PLC0415

    for path in (folder / name for name in _CONSTANTS):
        source = read(path)
        if not isinstance(source, bytes) or not any(name.encode() in source for name in given):
            continue
        tree = parse(source, path)
        for part in tree.body if isinstance(tree, ast.Module) else ():
            match part:
                case ast.Assign(
                    value=ast.Call(
                        func=ast.Name(id="int" | "float" as converter),
                        args=[ast.Call(func=read_by, args=[ast.Constant(value=str(name)), *_])],
                    )
                ) if dotted(read_by) in ("os.environ.get", "os.getenv") and name in given:
                    if problem := _problem(converter, given[name]):
                        yield UnreadableValue(
                            name, "Ray", f"{path}:{part.lineno}", problem, "import", _A_NUMBER
                        )


def _problem(converter: str, value: Any) -> str:
    try:
        int(value) if converter == "int" else float(value)
    except ValueError as error:
        return f"ValueError: {error}"
    return ""

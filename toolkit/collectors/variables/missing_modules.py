"""What the job imports by a name in its settings, or in the user's own files.

It covers modules in no folder of the job's path, and names that its verl lacks.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.own_contents import yaml_of
from verl_doctor.toolkit.collectors.configuration.reward_function import module_names
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch, changes_folder, folder_of, may_be_made
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.python.source import SourceTree, parsed, read, walk

# Settings whose value is a module's name or, with ".", an object in a module.
_MODULES: tuple[tuple[str, Phase], ...] = (
    ("actor_rollout_ref.model.external_lib", "workers"),
    ("critic.model.external_lib", "workers"),
    ("actor_rollout_ref.actor.optim.optimizer_impl", "workers"),
    ("critic.optim.optimizer_impl", "workers"),
    ("optim.optimizer_impl", "workers"),
    ("model.external_lib", "workers"),
    ("actor_rollout_ref.rollout.agent.agent_loop_manager_class", "first batch"),
)
_FILES: tuple[tuple[str, Phase], ...] = (
    ("reward.custom_reward_function.path", "first batch"),
    ("custom_reward_function.path", "first batch"),
    ("data.custom_cls.path", "workers"),
    ("actor_rollout_ref.rollout.multi_turn.function_tool_path", "first batch"),
)
_IMPORTED = (".optimizer_impl", ".external_lib")
"""Keys whose value is imported as a module."""
HUB = "VERL_USE_MODELSCOPE"
_EXTERNAL = "VERL_USE_EXTERNAL_MODULES"
_REWARD = "custom_reward_function.path"
_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
_EDITABLE = "editable"
_RUNTIME_ENV = "ray_kwargs.ray_init.runtime_env"
# What may change where later imports look, or install what they need.
_CHANGES_PATH = re.compile(
    (
        rb"^(?![ \t]*(?:import|from)\b).*(?:\bsys\.(?:path|modules|meta_path)\b|\baddsitedir\b"
        rb"|\bos\.system\b|\bpopen\b|\bsubprocess\.|\bexec\(|\bpip\.main\b)|^[ \t]*from[ \t]+(?:sys|os"
        rb"|subprocess|site)[ \t]+import\b"
    ),
    re.MULTILINE,
)


@dataclass(frozen=True)
class MissingModule:
    """A module's first name, the setting that names it, and the file and line that import it.

    File and line are "" and 0 for the setting itself.

    With `package`, `name` is the full name of a module, class or function that this installed package lacks,
    and `near` a similar one that it has, or "". `folder` holds a file or package of that name, beside the
    file that imports or names it; "" for none.
    """

    name: str
    key: str
    phase: Phase
    path: str = ""
    line: int = 0
    package: str = ""
    near: str = ""
    folder: str = ""


@dataclass(frozen=True)
class MissingModules:
    """The modules that are certainly missing."""

    modules: tuple[MissingModule, ...] = ()


@collector(kept=True)
def missing_modules(
    configuration: Configuration,
    launch: Launch,
    interpreter: Interpreter,
    job: JobVariables,
    machine: Machine,
    trees: VerlTrees | Unknown,
) -> MissingModules | Unknown:
    """Look for each module where the job would find it, and for names of verl in its sources.

    Modules are looked for in the job's folder, on its PYTHONPATH, and in the environment.
    """
    if launch.is_elsewhere or changes_folder(launch):
        return Absent("the folder or the machine on which the job starts is not known")
    wanted = [module for module in _wanted(configuration, folder_of(launch, machine.cwd)) if module.name]
    if _EXTERNAL not in job.undetermined:
        names = filter(None, job.get(_EXTERNAL).split(","))
        wanted += [MissingModule(name, _EXTERNAL, "import") for name in names if "$" not in name]
    if HUB not in job.undetermined and job.get(HUB).lower() == "true" and _reads_hub(trees):
        wanted.append(MissingModule("modelscope", HUB, "import"))
    if not wanted:
        return MissingModules()
    own = job.get("PYTHONPATH").split(os.pathsep)
    here = str(folder_of(launch, machine.cwd))
    path = [
        here,
        *(os.path.join(here, entry) for entry in own if entry),  # noqa: PTH118 - as Python does it
        *interpreter.sys_path,
        *interpreter.site_packages,
    ]
    if any("$" in entry for entry in own) or "PYTHONPATH" in job.undetermined:
        return Unknown("the job's PYTHONPATH is not known")
    runtime = configuration.get(_RUNTIME_ENV)
    if not isinstance(runtime, Mapping) and runtime not in (None, MISSING):
        return Unknown("the job's runtime_env is not known")
    brings = isinstance(runtime, Mapping) and any(runtime[name] for name in runtime if name != "env_vars")
    own_path = [entry for entry in path[: 1 + len(own)] if entry not in interpreter.sys_path]
    verl = (
        None if isinstance(trees, Unknown) else SourceTree(Path(trees.imported.folder), trees.imported.module)
    )
    found = []
    for module in wanted:
        lacking = _missing(module, path, verl)
        if lacking is not None and not lacking.package:
            may_come = brings or _may_be_made(lacking.name, path, launch)
            lacking = None if may_come or module.line > _last_sure_line(module.path, own_path) else lacking
        found += (
            [replace(lacking, folder=_folder_of(lacking, configuration, here))] if lacking is not None else []
        )
    return MissingModules(tuple(dict.fromkeys(found)))


def _folder_of(lacking: MissingModule, configuration: Configuration, here: str) -> str:
    """Return the folder of the file that imports or names a module, if the module lies there."""
    named = lacking.path or configuration.get(lacking.key)
    if lacking.package or not isinstance(named, str) or not named:
        return ""
    folder = os.path.dirname(os.path.normpath(os.path.join(here, named)))  # noqa: PTH118, PTH120 - a text
    inside = (f"{lacking.name}.py", f"{lacking.name}/__init__.py")
    return folder if any(os.path.isfile(f"{folder}/{name}") for name in inside) else ""


def _reads_hub(trees: VerlTrees | Unknown) -> bool:
    """Return whether verl imports ModelScope's package because of a variable."""
    source = None if isinstance(trees, Unknown) else read(Path(trees.imported.folder, "__init__.py"))
    return isinstance(source, bytes) and HUB.encode() in source


def _may_be_made(name: str, path: Sequence[str], launch: Launch) -> bool:
    return any(
        may_be_made(launch, os.path.normpath(f"{entry}/{name}{end}")) for entry in path for end in ("", ".py")
    )


def _last_sure_line(path: str, own: Sequence[str]) -> int:
    """Return the line up to which a file's imports look where the job's path leads.

    The file, or a module of the user's own, may change that path.
    """
    source = read(Path(path)) if path else None
    if not isinstance(source, bytes):
        return sys.maxsize
    match = _CHANGES_PATH.search(source)
    last = source.count(b"\n", 0, match.start()) + 1 if match else sys.maxsize
    tree = parsed(Path(path))
    for name, line in _imported(tree.body) if isinstance(tree, ast.Module) else ():
        files = (
            Path(entry, *name.split(".")[:end], *rest)
            for entry in own
            for end in (1, 2)
            for rest in (("__init__.py",), ())
        )
        sources = (read(file if file.suffix else file.with_suffix(".py")) for file in files)
        if any(isinstance(text, bytes) and _CHANGES_PATH.search(text) for text in sources):
            return min(last, line)
    return last


def _missing(module: MissingModule, path: Sequence[str], verl: SourceTree | None) -> MissingModule | None:
    """Return what is missing of a module or of a name in it; None if it is there or cannot be determined."""
    first = module.name.partition(".")[0]
    if not _is_there(first, path):
        return replace(module, name=first)
    if module.key.endswith(_IMPORTED) and _lacks_submodule(module.name, path):
        return module
    if verl is None or verl.name != first:
        return None
    lacking, near = _lacking(module.name, verl)
    return replace(module, name=lacking, package=first, near=near) if lacking else None


def _lacking(name: str, tree: SourceTree) -> tuple[str, str]:
    """Return the module, class or function of this name that a tree lacks, and a similar name.

    The similar name is one that the tree has. The result is "" twice if the tree may have the name.
    """
    steps = name.split(".")
    module = steps[0]
    for step in steps[1:]:
        inner = f"{module}.{step}"
        if tree.locate(inner) is None:
            names = _names_in(module, tree)
            near = difflib.get_close_matches(step, sorted(names or ()), 1)
            return ("", "") if names is None or step in names else (inner, "".join(near))
        module = inner
    return "", ""


def _names_in(module: str, tree: SourceTree) -> frozenset[str] | None:
    """Return the names that a module binds; None if they cannot be determined."""
    file = tree.locate(module)
    if file is not None and file.kind == "namespace":
        return frozenset()
    found = parsed(file.path) if file is not None and file.kind in ("module", "package") else None
    return None if found is None else module_names(found)


def _wanted(configuration: Configuration, here: Path) -> Iterator[MissingModule]:
    for key, phase in _MODULES:
        if configuration.override_of(key) is None:
            continue
        values = configuration.get(key)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str) and all(step.isidentifier() for step in value.split(".")):
                yield MissingModule(value, key, phase)
    for key, phase in _FILES:
        value = configuration.get(key)
        path = here / value if isinstance(value, str) and value.endswith(".py") else None
        tree = None if path is None else parsed(path)
        for name, line in _imported(tree.body) if isinstance(tree, ast.Module) else ():
            yield MissingModule(name, key, phase, str(path), line)
        if key.endswith(_REWARD) and isinstance(tree, ast.Module):
            called = configuration.get(f"{key.removesuffix('path')}name")
            for part in tree.body:
                if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == called:
                    for name, line in _imported(list(itertools.takewhile(_goes_on, part.body))):
                        yield MissingModule(name, key, phase, str(path), line)
    yield from _in_yaml(configuration, here)


def _in_yaml(configuration: Configuration, here: Path) -> Iterator[MissingModule]:
    """Yield the modules of tools' classes, and of the agent loop that the job uses."""
    for key, listed, named in (
        ("actor_rollout_ref.rollout.multi_turn.tool_config_path", "tools", "class_name"),
        ("actor_rollout_ref.rollout.agent.agent_loop_config_path", "", "_target_"),
    ):
        value = configuration.get(key)
        document = yaml_of(here / value) if isinstance(value, str) and value else None
        entries = document.get(listed) if isinstance(document, dict) and listed else document
        for entry in entries if isinstance(entries, list) else ():
            target = entry.get(named) if isinstance(entry, dict) else None
            used = listed or (isinstance(entry, dict) and entry.get("name") == configuration.get(_LOOP))
            if used and isinstance(target, str) and "." in target:
                yield MissingModule(target, key, "first batch")


def _goes_on(statement: ast.stmt) -> bool:
    """Return whether what follows in a function is always reached."""
    return not any(isinstance(part, (ast.Return, ast.Raise)) for part in walk(statement))


def _imported(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield the names imported whenever a file is, with their modules.

    Imports in a condition or a `try` may not be executed.
    """
    for node in body:
        match node:
            case ast.Import(names=aliases):
                yield from ((alias.name, node.lineno) for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0, names=aliases):
                yield from (
                    (module if alias.name == "*" else f"{module}.{alias.name}", node.lineno)
                    for alias in aliases
                )


def _is_there(name: str, path: Sequence[str]) -> bool:
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return True
    for entry in dict.fromkeys(path):
        try:
            names = os.listdir(entry)  # noqa: PTH208 - names alone
        except NotADirectoryError:
            return True  # an archive
        except OSError:
            continue
        if any(found == name or found.startswith(f"{name}.") for found in names):
            return True
        if any(_EDITABLE in found and _mentions(Path(entry, found), name) for found in names):
            return True
    return False


def _lacks_submodule(name: str, path: Sequence[str]) -> bool:
    """Return whether a package is a folder on the path without this submodule."""
    *above, last = name.split(".")
    for entry in dict.fromkeys(path):
        folder = Path(entry, *above)
        if above and os.path.isfile(folder / "__init__.py"):
            return not any(found.partition(".")[0] == last for found in os.listdir(folder))  # noqa: PTH208 - names alone
    return False


def _mentions(path: Path, name: str) -> bool:
    source = read(path)
    return not isinstance(source, bytes) or name.encode() in source

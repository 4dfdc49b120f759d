"""The user's folders and files that Python would import in place of an installed package.

With `-m` the current folder comes first on the path, with a script the script's folder
(https://docs.python.org/3/library/sys_path_init.html). A folder without `__init__.py` hides nothing: an
installed package takes precedence, wherever it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, changes_folder, folder_of
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

# Imports of `verl.trainer.main_ppo` in every release, its own or its first worker's.
_IMPORTED = (
    "datasets",
    "hydra",
    "numpy",
    "omegaconf",
    "pandas",
    "ray",
    "tensordict",
    "torch",
    "transformers",
)
# Modules that Python has loaded before it searches the path's first folder.
_LOADED = frozenset(
    {
        "abc",
        "builtins",
        "codecs",
        "encodings",
        "genericpath",
        "io",
        "marshal",
        "os",
        "posix",
        "posixpath",
        "site",
        "stat",
        "sys",
        "time",
        "zipimport",
    }
)
_MODULE = "verl.trainer."
_BEFORE_SAFE_PATH = ("3.8.", "3.9.", "3.10.")  # Python ignores PYTHONSAFEPATH
_EXTENDS = re.compile(rb"\b(?:extend_path|declare_namespace|__path__)\b")
_ALIKE = 0.5  # of the installed package's files: a folder with so many of them is a copy of it


@dataclass(frozen=True)
class Shadow:
    """A module `name`, the path that would be imported, and the installed package that it hides.

    `importer` is a file next to it that imports a name that the installed package lacks, "" if there is none,
    None if unknown.
    """

    name: str
    path: str
    hidden: str
    importer: str | None = ""


@dataclass(frozen=True)
class Shadows:
    """The modules that hide installed packages in the first `folder` on the job's path.

    Those in the folders of its PYTHONPATH are included.
    """

    folder: str
    modules: tuple[Shadow, ...] = ()


@collector(timeout=30, kept=True)
def shadows(
    machine: Machine, launch: Launch, interpreter: Interpreter, variables: Variables
) -> Shadows | Unknown:
    """Search the first folders on the path for modules that verl imports.

    A copy of the package hides nothing.
    """
    if launch.command is None:
        return Absent("no command that starts training was found")
    if launch.is_elsewhere or not launch.command.module.startswith(_MODULE):
        return Absent("the folder that comes first on the job's path cannot be determined")
    if changes_folder(launch):
        return Absent("the launch script changes the folder")
    here = folder_of(launch, machine.cwd)
    path, is_safe = variables.get("PYTHONPATH"), interpreter.safe_path
    for setting in launch.settings:
        if setting.name == "PYTHONPATH" and not setting.conditional:
            path = setting.value or ""
        if setting.name == "PYTHONSAFEPATH" and not interpreter.version.startswith(_BEFORE_SAFE_PATH):
            is_safe = (is_safe and setting.conditional) or (not setting.removed and setting.value != "")
    first = [here / entry for entry in path.split(os.pathsep) if entry and "$" not in entry]
    if not is_safe:
        first.insert(0, here)
    elif not first:
        return Absent("PYTHONSAFEPATH keeps the current folder off the path")
    own = {os.path.realpath(folder) for folder in (here, *first)}
    installed = [Path(entry) for entry in interpreter.sys_path if os.path.realpath(entry) not in own]
    hiding: dict[str, Shadow] = {}
    is_checkout = False
    for folder in first:
        for name in _candidates(folder):
            if name == "verl" and (is_checkout := is_checkout or _has_module(folder, launch.command.module)):
                continue
            if name not in hiding and (shadow := _shadow(name, folder, installed)) is not None:
                hiding[name] = shadow
    certain = {*_IMPORTED, "verl"}
    others = frozenset(hiding.keys() - certain)
    if others:
        from verl_doctor.toolkit.collectors.installed.reached import reached  # noqa: PLC0415 - only beside a folder that may hide something

        verl = [str(Path(interpreter.verl).parent)] if interpreter.verl else []
        others = reached(others, launch.command.module, dict.fromkeys([*verl, *interpreter.sys_path]))
    kept = sorted(hiding.keys() & certain) + sorted(others)
    return Shadows(str(here), tuple(_with_importer(hiding[name]) for name in kept))


def _with_importer(shadow: Shadow) -> Shadow:
    from verl_doctor.toolkit.collectors.installed.own_imports import importer  # noqa: PLC0415 - only beside a folder that hides something

    return replace(shadow, importer=importer(shadow.name, Path(shadow.path)))


def _candidates(folder: Path) -> Iterator[str]:
    """Yield the importable names in a folder, without those that Python loads before it searches there."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return
    names = dict.fromkeys(
        entry.removesuffix(".py") for entry in entries if entry.isidentifier() or entry.endswith(".py")
    )
    yield from (name for name in names if name.isidentifier() and name not in _LOADED)


def _has_module(folder: Path, module: str) -> bool:
    """Return whether a folder has the job's program, as a checkout of verl has it."""
    path = folder / module.replace(".", "/")
    return os.path.isdir(path) or os.path.isfile(f"{path}.py")


def _shadow(name: str, folder: Path, installed: Iterable[Path]) -> Shadow | None:
    own = next(_packages(name, folder), None)
    if own is None:
        return None
    real = next((path for entry in installed for path in _packages(name, entry)), None)
    if real is None or os.path.realpath(real) == os.path.realpath(own) or _is_copy(own, real):
        return None
    if os.path.isdir(own) and _extends(own / "__init__.py"):
        return None
    return Shadow(name, str(own), str(real))


def _extends(source: Path) -> bool:
    """Return whether a package also looks for its modules in other folders."""
    try:
        return _EXTENDS.search(source.read_bytes()) is not None
    except OSError:
        return True


def _packages(name: str, folder: Path) -> Iterator[Path]:
    if os.path.isfile(folder / name / "__init__.py"):
        yield folder / name
    elif os.path.isfile(folder / f"{name}.py"):
        yield folder / f"{name}.py"


def _is_copy(own: Path, real: Path) -> bool:
    """Return whether a folder has the installed package's contents: a checkout, perhaps another release's."""
    if not os.path.isdir(own):
        return False
    names = _sources(real) - {"__init__.py"}
    return bool(names) and len(names & _sources(own)) >= _ALIKE * len(names)


def _sources(folder: Path) -> frozenset[str]:
    try:
        return frozenset(
            entry.name
            for entry in os.scandir(folder)
            if entry.name.endswith(".py") or (entry.is_dir() and entry.name.isidentifier())
        )
    except OSError:
        return frozenset()

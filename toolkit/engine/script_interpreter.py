"""The interpreter that a launch script names: by path, or by the environment that it activates."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.shell.commands import COMMANDS
from verl_doctor.toolkit.sources.shell.found import Argument, Call
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import ShellState
from verl_doctor.toolkit.sources.shell.walk import Walk

_MOST = 1_000_000  # bytes of a script
_PROGRAM = re.compile(r"(?:python[\d.]*|torchrun|accelerate|ray|verl-doctor)")
_ACTIVATE = re.compile(r"activate(?:\.sh)?")
_CONDA = frozenset({"conda", "mamba", "micromamba"})
_ENVIRONMENTS = (
    "~/miniconda3/envs",
    "~/anaconda3/envs",
    "~/miniforge3/envs",
    "~/mambaforge/envs",
    "~/micromamba/envs",
    "~/.conda/envs",
)
"""Where conda keeps environments unless configured otherwise."""


@dataclass(frozen=True)
class NamedInterpreter:
    """An interpreter, the line that names it, and the files in which that was read."""

    python: Path
    place: str
    read: tuple[Path, ...] = ()


@dataclass
class _Reader:
    """Follows a script without running it.

    The last activated environment counts, unless a program is called by path.
    """

    machine: Machine
    activated: NamedInterpreter | None = None
    read: list[Path] = field(default_factory=list)

    def load(self, path: str) -> str | None:
        """Return the text of a sourced file.

        An `activate` script is not followed: its folder is the result.
        """
        if _ACTIVATE.fullmatch(Path(path).name):
            python = Path(path).parent / "python"
            if os.path.exists(python):
                self.activated = NamedInterpreter(python, f"source {path}")
            return ""
        self.read.append(Path(path))
        return _text(path)


def interpreter_of(script: Path, machine: Machine) -> NamedInterpreter | None:
    """Find the interpreter with which a shell script starts its job. None when it names none that exists."""
    if script.suffix in {".py", ".yaml", ".yml", ".json", ".toml"} or (text := _text(str(script))) is None:
        return None
    reader = _Reader(machine, read=[script])
    scope = Scope(ShellState(machine.environ, called=False, cwd=str(machine.cwd)), script=str(script))
    walk = Walk(scope, reader.load, str(script), COMMANDS)
    walk.script(text)
    called = [found for call in walk.calls if (found := _called(call, machine))]
    activated = [found for call in walk.calls if (found := _conda(call, machine))]
    found = called[0] if called else (activated[-1] if activated else reader.activated)
    return None if found is None else replace(found, read=tuple(reader.read))


def _text(path: str) -> str | None:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MOST:  # noqa: PTH202 - as the other calls here
            return None
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return None


def _called(call: Call, machine: Machine) -> NamedInterpreter | None:
    """Return the Python next to a program that is called by path, also after a wrapper such as srun."""
    for argument in call.argv:
        if argument.text and os.sep in argument.text and _PROGRAM.fullmatch(Path(argument.text).name):
            path = machine.cwd / argument.text
            is_python = path.name.startswith("python")
            python = path if is_python else path.parent / "python"
            if os.path.exists(python):
                return NamedInterpreter(Path(os.path.abspath(python)), _place(argument))
    return None


def _conda(call: Call, machine: Machine) -> NamedInterpreter | None:
    """Return the Python of an environment that conda or mamba activates, or runs a program in."""
    words = [argument.text for argument in call.argv]
    if not words or words[0] is None or Path(words[0]).name not in _CONDA or len(words) < 3:
        return None
    if words[1] == "activate":
        name = words[2]
    elif words[1] == "run":
        name = next((after for option, after in itertools.pairwise(words) if option in _NAMING), None)
    else:
        return None
    python = None if name is None else _python_of(name, machine)
    return None if python is None else NamedInterpreter(python, _place(call.argv[0]))


_NAMING = frozenset({"-n", "--name", "-p", "--prefix"})


def _python_of(name: str, machine: Machine) -> Path | None:
    home = machine.environ.get("HOME", "")
    if os.sep in name:
        folders = [machine.cwd / name.replace("~", home, 1) if name.startswith("~/") else machine.cwd / name]
    else:
        places = [place.replace("~", home, 1) for place in _ENVIRONMENTS]
        if executable := machine.environ.get("CONDA_EXE"):
            places.insert(0, str(Path(executable).parent.parent / "envs"))
        if prefix := machine.environ.get("CONDA_PREFIX"):
            places += [str(Path(prefix, "envs")), str(Path(prefix).parent)]
        listed = (_text(os.path.join(home, ".conda", "environments.txt")) or "").splitlines()  # noqa: PTH118
        folders = [Path(line) for line in listed if Path(line).name == name]
        folders += [Path(place, name) for place in places]
    pythons = (folder / "bin" / "python" for folder in folders)
    return next((python for python in pythons if os.path.exists(python)), None)


def _place(argument: Argument) -> str:
    return f"{Path(argument.path).name}:{argument.line}"

"""What the user asked to have examined, and which interpreter that means."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from verl_doctor.toolkit.machine import Machine

Environment = Literal["--python", "virtual environment", "conda environment", "verl-doctor's own"]


class UsageError(Exception):
    """The user's input cannot be used: one sentence with the next step. Exit code 2."""


@dataclass(frozen=True)
class Options:
    """What the command line names explicitly. Everything else is discovered."""

    python: Path | None = None
    verl: Path | None = None
    vllm: Path | None = None


@dataclass(frozen=True)
class Target:
    """The interpreter to examine, how it was found, and the trees that the user named."""

    python: Path
    chosen_by: Environment
    verl: Path | None = None
    vllm: Path | None = None

    @property
    def prefix(self) -> Path:
        """The environment's folder: the interpreter's `bin` folder lies in it."""
        return self.python.parent.parent

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options with which another command examines the same target."""
        named = {
            "--python": self.python if self.chosen_by == "--python" else None,
            "--verl": self.verl,
            "--vllm": self.vllm,
        }
        return tuple(
            word for option, path in named.items() if path is not None for word in (option, str(path))
        )


def discover(options: Options, machine: Machine) -> Target:
    """Choose the interpreter: the option, then the active environment, then the one that runs the doctor.

    Raises UsageError when what the user named cannot be an interpreter or a source tree.
    """
    python, chosen_by = _interpreter(options, machine)
    return Target(
        python=python,
        chosen_by=chosen_by,
        verl=_package_folder(options.verl, "verl", machine),
        vllm=_package_folder(options.vllm, "vllm", machine),
    )


def _interpreter(options: Options, machine: Machine) -> tuple[Path, Environment]:
    if options.python is not None:
        return _named_interpreter(machine.cwd / options.python), "--python"
    for variable, kind in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        prefix = machine.environ.get(variable)
        if prefix and os.path.exists(python := Path(prefix, "bin", "python")):
            return python, kind  # type: ignore[return-value]
    return Path(sys.executable), "verl-doctor's own"


def _named_interpreter(path: Path) -> Path:
    if os.path.isdir(path):
        inside = path / "bin" / "python"
        if os.path.exists(inside):
            return _absolute(inside)
        raise UsageError(
            f"--python {path}: this folder holds no bin/python; name an interpreter or its environment"
        )
    if not os.path.exists(path):
        raise UsageError(f"--python {path}: there is no such file; name the environment's bin/python")
    if not os.access(path, os.X_OK):
        raise UsageError(f"--python {path}: this file cannot be executed; name the environment's bin/python")
    return _absolute(path)


def _absolute(path: Path) -> Path:
    """Make absolute without following links: a virtual environment's python is a link to another one's."""
    return Path(os.path.abspath(path))


def _package_folder(path: Path | None, package: str, machine: Machine) -> Path | None:
    """Accept the folder that holds the package as well as the package folder itself; return the package folder."""
    if path is None:
        return None
    path = _absolute(machine.cwd / path)
    if not os.path.isdir(path):
        raise UsageError(
            f"--{package} {path}: there is no such folder; name a {package} checkout or package folder"
        )
    for folder in (path / package, path / "src" / package, path):
        if os.path.isfile(folder / "__init__.py") and (folder.name == package or folder == path):
            return folder
    raise UsageError(
        f"--{package} {path}: this folder is no {package} tree: it holds neither {package}/__init__.py nor "
        f"__init__.py; name the checkout, the unpacked wheel, or the package folder itself"
    )


def journal_homes(target: Target) -> tuple[Path, Path]:
    """Where changes are journalled: beside the environment for what lies in it, and in the user's state folder.

    The first dies with the environment that it describes. The second serves trees outside of any environment and
    interpreters that are none, such as /usr/bin/python3; it must not lie in the doctor's own, short-lived environment.
    """
    outside = platformdirs.user_state_path("verl-doctor") / "journal"
    is_environment = os.path.exists(target.prefix / "pyvenv.cfg") or os.path.isdir(
        target.prefix / "conda-meta"
    )
    return (target.prefix / ".verl-doctor" if is_environment else outside), outside


def journal_home(target: Target, paths: Iterable[Path]) -> Path:
    """The journal for changes to these paths: the environment's when all lie in it."""
    inside, outside = journal_homes(target)
    prefix = Path(os.path.realpath(target.prefix))
    return inside if all(Path(os.path.realpath(path)).is_relative_to(prefix) for path in paths) else outside

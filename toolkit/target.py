"""The target that the user requested, and the interpreter that follows from it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from verl_doctor.toolkit.text import lines_of_output

if TYPE_CHECKING:
    from verl_doctor.toolkit.machine import Machine

Environment = Literal[
    "--python", "virtual environment", "conda environment", ".venv", "launch script", "verl-doctor's own"
]
"""How the interpreter was found, in order of precedence."""


_ACTIVE: Mapping[str, Environment] = {
    "VIRTUAL_ENV": "virtual environment",
    "CONDA_PREFIX": "conda environment",
}


_HOST_AND_PORT = re.compile(r"(\[[\da-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})", re.ASCII)

LIBRARIES = ("ray", "transformers", "tensordict", "sglang")
"""The packages besides vLLM whose API verl uses: installed ones are read, bare trees can be named."""

_LOGS = (".log", ".out", ".err")
LARGEST_SCRIPT = 2_000_000
"""Bytes of a launch script: a larger file is not read."""


class UsageError(Exception):
    """Unusable input: one sentence with the next step. Exit code 2."""


class CannotJudgeError(Exception):
    """Input that may be valid but that the doctor cannot examine: one sentence with the reason.

    Exit code 3.
    """


@dataclass(frozen=True)
class Options:
    """What the command line names explicitly. Everything else is discovered."""

    python: Path | None = None
    verl: Path | None = None
    vllm: Path | None = None
    libraries: tuple[tuple[str, Path], ...] = ()
    launch: tuple[str, ...] = ()
    model: Path | None = None
    data: tuple[Path, ...] = ()
    ray_address: str = ""
    gpu_memory: int = 0


@dataclass(frozen=True)
class Target:
    """The interpreter to examine, how it was found, and what else the user named.

    `libraries` are bare trees of other packages, by name. `files` are what starts the job: launch scripts,
    `runtime_env` YAML, Dockerfiles. `words` are the arguments after them, or a whole command line when there
    are no files. `model` is a model's folder, `model_by` what named it, `data` are data files. `ray_address`
    is the address of a cluster's control store (GCS), "host:port". `gpu_memory` is the memory in bytes of the
    GPUs that the job is judged for, 0 for this machine's. `passed_over` names the environment that was
    rejected, and why. `chosen_at` is the place in the launch script that names the interpreter.
    """

    python: Path
    chosen_by: Environment
    verl: Path | None = None
    vllm: Path | None = None
    libraries: tuple[tuple[str, Path], ...] = ()
    files: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    model: Path | None = None
    data: tuple[Path, ...] = ()
    ray_address: str = ""
    gpu_memory: int = 0
    passed_over: str = ""
    model_by: str = "--model"
    chosen_at: str = ""

    @property
    def chosen_why(self) -> str:
        """How the interpreter was found, as text."""
        words = {
            "virtual environment": "active virtual environment",
            "conda environment": "active conda environment",
            ".venv": ".venv here or above",
            "launch script": f"named in the launch script, {self.chosen_at}",
        }
        return words.get(self.chosen_by, self.chosen_by)

    @property
    def prefix(self) -> Path:
        """The environment's folder, which contains the interpreter's `bin` folder."""
        return self.python.parent.parent

    @property
    def names_no_environment(self) -> bool:
        """Whether only a tree is named: the doctor's installed packages are not those of the job."""
        return self.verl is not None and self.chosen_by == "verl-doctor's own"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options with which another command examines the same target, except `--gpu-memory`.

        `--gpu-memory` belongs to --deep.
        """
        named = (
            ("--python", self.python if self.chosen_by in ("--python", "launch script") else None),
            ("--verl", self.verl),
            ("--tree", None if self.vllm is None else f"vllm={self.vllm}"),
            *(("--tree", f"{name}={path}") for name, path in self.libraries),
            ("--model", self.model),
            *(("--data", path) for path in self.data),
            ("--ray-address", self.ray_address or None),
        )
        options = [word for option, path in named if path is not None for word in (option, str(path))]
        launch = [*map(str, self.files), *self.words]
        return (*options, *(["--"] if any(word.startswith("-") for word in launch) else []), *launch)


def discover(options: Options, machine: Machine) -> Target:
    """Choose the interpreter: the option, then the active environment, then the one that runs the doctor.

    `engine.discovery` searches further places between the last two.

    Raises UsageError when what the user named cannot be an interpreter or a source tree.
    """
    python, chosen_by, passed_over = _interpreter(options, machine)
    files, words = _launch(options.launch, machine)
    libraries = {name: _package_folder(path, name, machine) for name, path in options.libraries}
    return Target(
        python=python,
        chosen_by=chosen_by,
        passed_over=passed_over,
        verl=_package_folder(options.verl, "verl", machine),
        vllm=_package_folder(options.vllm, "vllm", machine),
        libraries=tuple((name, folder) for name, folder in libraries.items() if folder is not None),
        files=files,
        words=words,
        model=_existing(options.model, "--model", machine),
        data=tuple(path for named in options.data if (path := _existing(named, "--data", machine))),
        ray_address=_ray_address(options.ray_address),
        gpu_memory=options.gpu_memory,
    )


_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml")


def _launch(given: tuple[str, ...], machine: Machine) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Separate the files that start the job from their arguments, or from a command line without files.

    A Python program is the beginning of a command line.
    """
    files: list[Path] = []
    for index, word in enumerate(given):
        path = machine.cwd / word
        if os.path.isdir(path):
            raise UsageError(
                f"{word}: this is a folder; name a launch script, or a complete command after --"
            )
        if not os.path.exists(path):
            if not files and "=" not in word and (len(given) == 1 or word.endswith(_SCRIPTS)):
                _demand_access(path, word)
                raise UsageError(
                    f"{word}: no such file; name a launch script, or a complete command after --"
                )
            return tuple(files), given[index:]
        if not files and len(given) > 1 and is_program(path):
            return (), given
        if word.endswith(".py"):
            return tuple(files), ("python3", *given[index:])
        files.append(_absolute(path))
        _demand_text(files[-1], word)
    return tuple(files), ()


def is_program(path: Path) -> bool:
    """Return whether a file is a compiled program, such as an interpreter by full path, and not a script."""
    if not os.path.isfile(path) or not os.access(path, os.X_OK):  # opening a pipe would block
        return False
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _demand_text(path: Path, word: str) -> None:
    """Reject what cannot be a launch script, such as a program or a data file."""
    if not os.path.isfile(path):  # opening a pipe would block
        raise UsageError(f"{word}: not a regular file; name a launch script, or a complete command after --")
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(4096)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UsageError(f"{word}: it cannot be read: {error.strerror}") from None
    if b"\0" in head:
        raise UsageError(f"{word}: not a text file; name a launch script, or a complete command after --")
    if _is_log(path, head):
        raise UsageError(
            f"{word}: a log, not a launch script; run verl-doctor logs {shlex.quote(word)}, or name the "
            "script"
        )
    if size > LARGEST_SCRIPT:
        raise UsageError(
            f"{word}: {size / 1e6:.1f} MB, too large for a launch script; name a launch script, or a "
            "complete command after --"
        )


def _is_log(path: Path, head: bytes) -> bool:
    """Return whether a file that begins like this is output: by its name, or half of its lines."""
    found = 0 if head.startswith(b"#!") else lines_of_output(head)
    written = sum(1 for line in head.splitlines() if line.strip())
    return found > 0 and (path.suffix in _LOGS or (found > 1 and 2 * found >= written))


def _ray_address(given: str) -> str:
    """Return the address of a cluster's GCS, or "" for the cluster a job started from here would find."""
    if given in ("", "auto"):
        return ""
    scheme, separator, _ = given.partition("://")
    if separator:
        raise UsageError(
            f"--ray-address {given}: {scheme}:// leads to another service of Ray's; name host and port "
            "of its GCS, as in 10.0.0.1:6379"
        )
    match = _HOST_AND_PORT.fullmatch(given)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(
            f"--ray-address {given}: not a host and port; give those of a Ray head, such as 10.0.0.1:6379"
        )
    return given


def _existing(path: Path | None, option: str, machine: Machine) -> Path | None:
    """Return an absolute path that exists."""
    if path is None:
        return None
    path = _absolute(machine.cwd / path)
    _demand_access(path, f"{option} {path}")
    if not os.path.exists(path):
        raise UsageError(f"{option} {path}: no such file or folder")
    return path


def _interpreter(options: Options, machine: Machine) -> tuple[Path, Environment, str]:
    if options.python is not None:
        return _named_interpreter(options.python, machine), "--python", ""
    passed_over: list[str] = []
    for variable, kind in _ACTIVE.items():
        if prefix := machine.environ.get(variable):
            python = Path(prefix, "bin", "python")
            if os.path.exists(python):
                return python, kind, "; ".join(passed_over)
            passed_over.append(f"{variable}={prefix} is set, but {python} does not exist")
    return Path(sys.executable), "verl-doctor's own", "; ".join(passed_over)


def _named_interpreter(named: Path, machine: Machine) -> Path:
    path = machine.cwd / named
    if named.name == str(named) and not os.path.lexists(path):  # `--python python3`, as typed
        import shutil  # noqa: PLC0415 - only for the bare name of a program

        path = Path(shutil.which(named, path=machine.environ.get("PATH")) or path)
    _demand_access(path, f"--python {path}")
    if os.path.isdir(path):
        inside = path / "bin" / "python"
        _demand_access(inside, f"--python {path}")
        if os.path.exists(inside):
            return _absolute(inside)
        raise UsageError(
            f"--python {path}: this folder contains no bin/python; name an interpreter or its environment"
        )
    if not os.path.exists(path):
        raise UsageError(f"--python {path}: no such file; name the environment's bin/python")
    if not os.access(path, os.X_OK):
        raise UsageError(f"--python {path}: this file cannot be executed; name the environment's bin/python")
    return _absolute(path)


def _demand_access(path: Path, reason: str) -> None:
    """Distinguish what may not be read from what does not exist."""
    try:
        os.stat(path)  # noqa: PTH116 - as above
    except PermissionError:
        raise UsageError(f"{reason}: no permission; ask its owner, or run as another user") from None
    except (OSError, ValueError):
        return


def _absolute(path: Path) -> Path:
    """Make absolute without following links: a virtual environment's python links to another's."""
    return Path(os.path.abspath(path))


def _option(package: str) -> str:
    """Return the option that names a tree of this package, up to its folder."""
    return "--verl " if package == "verl" else f"--tree {package}="


def _package_folder(path: Path | None, package: str, machine: Machine) -> Path | None:
    """Return the package folder, given that folder or its parent."""
    if path is None:
        return None
    path = _absolute(machine.cwd / path)
    _demand_access(path, f"{_option(package)}{path}")
    if not os.path.isdir(path):
        what = "it is a file, not a folder" if os.path.exists(path) else "no such folder"
        unpack = "; unpack the wheel first" if path.suffix == ".whl" else ""
        raise UsageError(
            f"{_option(package)}{path}: {what}{unpack or f'; name a {package} checkout or package folder'}"
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(
            f"{_option(package)}{path}: no permission to read this folder; ask its owner, or run as "
            "another user"
        )
    for folder in (path / package, path / "src" / package, path):
        if os.path.isfile(folder / "__init__.py") and (folder.name == package or folder == path):
            return folder
    raise UsageError(
        f"{_option(package)}{path}: not a {package} tree: the folder contains neither "
        f"{package}/__init__.py nor __init__.py; name the checkout, the unpacked wheel, or the package "
        "folder itself"
    )


def journal_homes(target: Target) -> tuple[Path, Path]:
    """Return where changes are journalled: in the environment for its files, and in the user's folder.

    It is the user's state folder.

    The first is deleted together with the environment that it describes. The second serves trees outside any
    environment and interpreters without one, such as /usr/bin/python3; it must not lie in the doctor's own,
    short-lived environment.
    """
    import platformdirs  # noqa: PLC0415 - a gate at job start does not need it

    outside = platformdirs.user_state_path("verl-doctor") / "journal"
    is_environment = os.path.exists(target.prefix / "pyvenv.cfg") or os.path.isdir(
        target.prefix / "conda-meta"
    )
    return (own_journal(target) if is_environment else outside), outside


def own_journal(target: Target) -> Path:
    """Return where changes in an environment are journalled: inside it."""
    return target.prefix / ".verl-doctor"


def journal_home(target: Target, paths: Iterable[Path], *, about_environment: bool = False) -> Path:
    """Return the journal for changes to these files: the environment's when all lie in it, else the user's.

    Changes that are `about_environment` but in no file are journalled in the user's folder where the
    environment is not writable.
    """
    inside, outside = journal_homes(target)
    prefix = Path(os.path.realpath(target.prefix))
    real = [Path(os.path.realpath(path.parent), path.name) for path in paths]
    if about_environment and not real and not os.access(prefix, os.W_OK):
        return outside
    return inside if all(path.is_relative_to(prefix) for path in real) else outside

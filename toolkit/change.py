"""Changes and fixes as data. Only the change engine carries a change out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.facts import Need, needs_of
from verl_doctor.toolkit.rule import Finding

Safety = Literal["safe", "unsafe", "manual"]


@dataclass(frozen=True)
class ReplaceFile:
    """Replace a file's content. Refused unless the file is exactly `before`."""

    path: Path
    before: bytes
    after: bytes
    why: str = ""
    """What the user should know before it is applied: the arithmetic, and its effect on the training."""

    undoable = True


@dataclass(frozen=True)
class NewFile:
    """Create a file that does not exist yet, with permission bits `mode`."""

    path: Path
    content: bytes
    mode: int = 0o644

    undoable = True


@dataclass(frozen=True)
class RemoveFile:
    """Remove a file. Refused unless it is exactly `before`; undo gives it back."""

    path: Path
    before: bytes
    why: str = ""

    undoable = True


@dataclass(frozen=True)
class NewLink:
    """Create a symbolic link, and its parent folders, where nothing exists yet."""

    path: Path
    target: Path

    undoable = True


@dataclass(frozen=True)
class SetVariable:
    """Set an environment variable for all processes of the job, or unset it (`value` None).

    `fix --output-env DIR` applies it: in the shell file that is sourced before Ray is started, and in the
    `runtime_env` that Ray gives to its workers. `why` is a sentence, "" for the finding's own. `until` names
    when it is no longer needed, "" when that depends on this machine alone. With `prepend` the value is put
    in front of an existing list of paths. `node_only` means that other nodes may need another value, so it is
    left out of the `runtime_env`.
    """

    name: str
    value: str | None
    why: str = ""
    until: str = ""
    prepend: bool = False
    node_only: bool = False

    undoable = True


@dataclass(frozen=True)
class CompileBytecode:
    """Write the missing bytecode caches below `roots` with the target's own interpreter.

    Journalled as one manifest, not as one entry per file. Undo removes the caches that are still as written.
    """

    python: Path
    roots: tuple[Path, ...]

    undoable = True


@dataclass(frozen=True)
class RunCommand:
    """Run a command, for instance an installer call. It cannot be undone, so it is unsafe by type."""

    argv: tuple[str, ...]
    why: str

    undoable = False


PYTHON, LOCK = "{python}", "{lock}"
"""Placeholders in an installer's command: the interpreter to install for, and the lock file."""


@dataclass(frozen=True)
class InstallPackages:
    """Install exactly the packages that `lock` pins in a copy of a virtual environment.

    They are installed in the environment itself when `copy` is it.

    `installer` is the command, with `PYTHON` and `LOCK` in it. `cleared` are the metadata folders, relative
    to the environment, of distributions whose files are removed first: the installer could not remove them
    completely. `why` is a line for each kind of change.
    """

    environment: Path
    copy: Path
    lock: tuple[str, ...]
    installer: tuple[str, ...]
    cleared: tuple[str, ...] = ()
    why: tuple[str, ...] = ()

    undoable = True

    @property
    def in_place(self) -> bool:
        """Whether the environment itself changes."""
        return self.copy == self.environment

    @property
    def lock_file(self) -> Path:
        """The path of the lock file afterwards."""
        return self.copy / "verl-doctor.lock.txt"

    @property
    def command(self) -> tuple[str, ...]:
        """The command to run."""
        places = {PYTHON: str(self.copy / "bin" / "python"), LOCK: str(self.lock_file)}
        return tuple(places.get(word, word) for word in self.installer)


Change = (
    ReplaceFile
    | NewFile
    | RemoveFile
    | NewLink
    | SetVariable
    | CompileBytecode
    | RunCommand
    | InstallPackages
)


@dataclass(frozen=True)
class Refusal:
    """The reason why a fix does not handle this case, instead of a guess."""

    reason: str


@dataclass(frozen=True)
class Fix:
    """A repair: a pure function from a finding and facts to changes, with its declaration.

    A `last_resort` is tried for the errors of its rules for which no fix is known.
    """

    id: str
    repairs: tuple[str, ...]
    plan: Callable[..., list[Change] | Refusal]
    needs: tuple[Need, ...]
    safety: Safety
    upstream: str = ""
    needed: str = ""
    restart: str = ""
    last_resort: bool = False

    @property
    def sets_variables(self) -> bool:
        """Whether its family, the folder of its module, is that of the job's variables."""
        return self.plan.__module__.split(".")[-2:-1] == ["variables"]

    @property
    def installs(self) -> bool:
        """Whether it changes packages: which takes minutes."""
        return self.safety == "unsafe" and self.plan.__module__.split(".")[-2:-1] == ["install"]

    @property
    def title(self) -> str:
        """The first line of the fix's docstring."""
        return (inspect.getdoc(self.plan) or self.id).splitlines()[0].rstrip(".")


def fix(
    identifier: str,
    *,
    repairs: str | tuple[str, ...],
    safety: Safety,
    upstream: str = "",
    needed: str = "",
    restart: str = "",
    last_resort: bool = False,
) -> Callable[[Callable[..., list[Change] | Refusal]], Fix]:
    """Declare a fix.

    `repairs` are the codes of the rules whose findings it repairs. `upstream` names the change in another
    project that made it necessary (repo#number), `needed` the version range that needs it, `restart` what
    must be restarted before it takes effect.
    """

    def declare(function: Callable[..., list[Change] | Refusal]) -> Fix:
        return Fix(
            identifier,
            (repairs,) if isinstance(repairs, str) else repairs,
            function,
            needs_of(function, skip=(Finding,)),
            safety,
            upstream,
            needed,
            restart,
            last_resort,
        )

    return declare


def safety_of(declared: Safety, changes: list[Change]) -> Safety:
    """Return the safety of a plan: what cannot be undone is unsafe by type, whatever its author declared."""
    if declared == "safe" and not all(change.undoable for change in changes):
        return "unsafe"
    return declared


def describe(change: Change) -> dict[str, Any]:
    """Describe in JSON types what a change would do, without the bytes."""
    match change:
        case ReplaceFile(path):
            return {"kind": "replace_file", "path": str(path)}
        case NewFile(path):
            return {"kind": "new_file", "path": str(path)}
        case RemoveFile(path):
            return {"kind": "removed_file", "path": str(path)}
        case NewLink(path, target):
            return {"kind": "new_link", "path": str(path), "target": str(target)}
        case SetVariable():
            return {"kind": "set_variable", **asdict(change)}
        case CompileBytecode(python, roots):
            return {"kind": "compile_bytecode", "python": str(python), "roots": [str(root) for root in roots]}
        case RunCommand(argv, why):
            return {"kind": "run_command", "argv": list(argv), "why": why}
        case InstallPackages(environment, copy, lock, cleared=cleared, why=lines):
            return {
                "kind": "install_packages",
                "environment": str(environment),
                "copy": str(copy),
                "argv": list(change.command),
                "lock_file": str(change.lock_file),
                "lock": list(lock),
                "cleared": list(cleared),
                "why": list(lines),
            }

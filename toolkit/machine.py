"""What collectors need of this machine: its environment and files, and a way to run programs.

Tests pass their own `Machine`, whose programs may return recorded output.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.process.dialogue import Dialogue
from verl_doctor.toolkit.process.group import Output, run_group, started
from verl_doctor.toolkit.process.locked_folder import temporary_folder

__all__ = ["Answer", "Machine", "Output", "Runner"]

Answer = Output
"""The name of `Output` in 0.1, for plugins."""

# Caches of a child go to a private folder, so that inspecting an environment leaves no trace in the user's
# home.
_PRIVATE_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TMPDIR")
_MOST_OF_A_FILE = 4 * 1024 * 1024  # bytes
_MOST_LINKS = 40  # as in the kernel
_PIECE = 1024 * 1024  # bytes that are read at a time
Runner = Callable[[Sequence[str], Mapping[str, str], float], Output]


def _current_folder() -> Path:
    """Return the current folder; the root when it was removed meanwhile."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


@dataclass(frozen=True)
class Machine:
    """This machine, as the user sees it.

    `planned` is the content that a plan would give launch files, by path: they are read as if it were
    written. `root` is where `/proc`, `/sys`, `/dev` and `/etc` are looked for; a recorded machine has them in
    a folder. `as_started` turns the environment that a Ray process was started with into the environment
    after its restart; they differ only while a repair of the job's environment is judged.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=_current_folder)
    runner: Runner | None = None
    root: Path = Path("/")
    planned: Mapping[str, bytes] = field(default_factory=dict)
    as_started: Callable[[Mapping[str, str]], Mapping[str, str]] = dict

    @property
    def home(self) -> str:
        """The user's home as Python's expanduser finds it.

        HOME, else the entry in the user database; "" where neither exists.
        """
        if home := self.environ.get("HOME"):
            return home
        try:
            import pwd  # noqa: PLC0415 - exists on Unix alone

            return pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, KeyError):
            return ""

    def expanded(self, path: str) -> str:
        """Return a path with the user's home in place of `~` and `$HOME`, as a shell expands it."""
        home = self.home or "~"
        path = path.replace("${HOME}", home).replace("$HOME", home)
        return home + path[1:] if path == "~" or path.startswith("~/") else path

    def at(self, path: str) -> Path:
        """Return the real location of an absolute path of the machine."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str | None:
        """Return the text of a small kernel file; None when it does not exist or is not readable.

        Never waits for a pipe.
        """
        try:
            with open(self.at(path), "rb", opener=_at_once) as file:
                # In pieces: for a single setting, the kernel rejects a buffer of 4 MiB
                # (proc_sys_call_handler).
                pieces = []
                for _ in range(_MOST_OF_A_FILE // _PIECE):
                    if not (piece := file.read(_PIECE)):
                        break
                    pieces.append(piece)
                return b"".join(pieces).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def real(self, path: str) -> str:
        """Return an absolute path of the machine with all links resolved, whether or not its end exists.

        Absolute link targets are resolved below `root`. A path through a cycle of links is returned as it is.
        """
        if self.root == Path("/"):
            return os.path.realpath(path)
        done, waiting, links = "/", _steps(path), 0
        while waiting:
            step = os.path.normpath(f"{done.rstrip('/')}/{waiting.pop()}")
            try:
                target = str(self.at(step).readlink())
            except OSError:
                done = step
                continue
            links += 1
            if links > _MOST_LINKS:
                return path
            waiting += _steps(target)
            if target.startswith("/"):
                done = "/"
        return done

    def run(self, argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Output:
        """Run a program as the user's job would be run, in a private folder, without writing bytecode.

        It and all that it started are killed after `timeout` seconds, or as soon as it has ended. Raises
        OSError when it cannot be started.
        """
        with self._private(env) as (private, environment), TURNS.waiting():
            return (self.runner or partial(run_group, folder=private))(argv, environment, timeout)

    @contextlib.contextmanager
    def open_dialogue(
        self,
        argv: Sequence[str],
        order: bytes,
        *,
        env: Mapping[str, str] | None = None,
        patience: float = 5.0,
    ) -> Iterator[Dialogue]:
        """Start a program as `run` does, and exchange messages with it.

        On exit it is told to stop, and killed after `patience` seconds.

        Raises OSError when it cannot be started.
        """
        with contextlib.ExitStack() as stack:
            private, environment = stack.enter_context(self._private(env))
            let_go = stack.enter_context(contextlib.ExitStack())
            process = stack.enter_context(started(argv, environment, private, stdin=subprocess.PIPE))
            dialogue = Dialogue(process, order)
            let_go.callback(dialogue.close)
            stack.callback(dialogue.stop, patience)
            yield dialogue

    speak = open_dialogue  # its name in 0.1, for plugins

    @contextlib.contextmanager
    def _private(self, env: Mapping[str, str] | None) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield a private folder for a child, and the child's environment in it."""
        with temporary_folder() as private:
            environment = {
                **self.environ,
                **dict.fromkeys(_PRIVATE_FOLDERS, private),
                **self.as_seen_from_elsewhere(),
            }
            environment.update({"PYTHONDONTWRITEBYTECODE": "1"} if env is None else env)
            yield private, environment

    def as_seen_from_elsewhere(self) -> dict[str, str]:
        """Return variables that would change meaning in a private home and folder.

        They concern the user's packages and relative paths.
        """
        seen = {}
        if not self.environ.get("PYTHONUSERBASE") and (home := self.home):
            seen["PYTHONUSERBASE"] = str(Path(home, ".local"))
        if path := self.environ.get("PYTHONPATH"):
            entries = [os.path.normpath(self.cwd / entry) for entry in path.split(os.pathsep)]
            seen["PYTHONPATH"] = os.pathsep.join(entries)
        return seen


def _at_once(path: str, flags: int) -> int:
    """Open without blocking: any user may put a pipe where a file of Ray's is expected."""
    return os.open(path, flags | os.O_NONBLOCK)


def _steps(path: str) -> list[str]:
    """Return the parts of a path, the last part first."""
    return [part for part in reversed(path.split("/")) if part]

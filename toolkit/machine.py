"""The only door to the world outside: the file system, the environment, other programs, the clock.

Collectors receive a `Machine`; tests give them one whose root is a folder and whose commands answer from a table.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Caches of a child go to a private folder, so that looking at an environment leaves no trace in the user's home.
_PRIVATE_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TMPDIR")


@dataclass(frozen=True)
class Answer:
    """What a child process said. `code` is None when it ran out of time and was killed."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def said(self) -> str:
        """The last line of its complaint, for a one-line reason."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else "it said nothing"


Runner = Callable[[Sequence[str], Mapping[str, str], float], Answer]


@dataclass(frozen=True)
class Machine:
    """This machine, or a folder that stands for one."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    runner: Runner | None = None

    def at(self, path: str | Path) -> Path:
        """Where the absolute `path` of the examined machine is found."""
        return Path(path) if self.root == Path("/") else self.root / str(path).lstrip("/")

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def run(self, argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Answer:
        """Run a program as the user's job would be run, in a private folder, without writing bytecode.

        Its whole process group is killed after `timeout` seconds. Raises OSError when it cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="verl-doctor-", ignore_cleanup_errors=True) as private:
            environment = {**self.environ, **dict.fromkeys(_PRIVATE_FOLDERS, private)}
            environment.update({"PYTHONDONTWRITEBYTECODE": "1"} if env is None else env)
            if self.runner is not None:
                return self.runner(argv, environment, timeout)
            return _run_group(argv, environment, timeout, private)


def _run_group(argv: Sequence[str], environ: Mapping[str, str], timeout: float, folder: str) -> Answer:
    started = time.monotonic()
    with subprocess.Popen(
        list(argv),
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = None
    return Answer(code, out, err, time.monotonic() - started)

"""Real processes with the names of a job's, whose trainer lives or was killed.

Each is `sleep` under another name. The first process is called tini, as in a container, and takes over who has lost its
parent; it does what it is told line by line, and with it all of them end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__)
_SET_CHILD_SUBREAPER = 36  # prctl(2)
ENGINE = "VLLM::EngineCore"
TRAINER = "python3 -m verl.trainer.main_ppo"


@dataclass(frozen=True)
class Reaper:
    """The first process. It starts trainers, which start engines."""

    process: subprocess.Popen[str]
    started: list[int] = field(default_factory=list)

    def job(self, *children: str, trainer: str = TRAINER, log: str = os.devnull) -> tuple[int, list[int]]:
        """Start a trainer that has started these; give its number and theirs.

        Each holds one end of a pipe to the trainer, as a child of multiprocessing does, and writes to `log`.
        """
        numbers = self._told("job", trainer, children, log)
        self.started.extend(numbers)
        return numbers[0], numbers[1:]

    def kill(self, pid: int) -> None:
        """Kill one of them and wait until its children have been taken over."""
        self._told("kill", pid)

    def _told(self, *order: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def reaper() -> Iterator[Reaper]:
    """Start the first process, and end all that it started afterwards."""
    process = subprocess.Popen(
        ["tini", str(_HERE)],
        executable=sys.executable,
        env={"PYTHONHOME": sys.base_prefix, "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    one = Reaper(process)
    try:
        yield one
    finally:
        for pid in one.started:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def _serve() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        match json.loads(line):
            case ["job", trainer, children, log]:
                answer: Any = _job(trainer, children, log)
            case ["kill", pid]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                answer = pid
        print(json.dumps(answer), flush=True)


def _job(trainer: str, children: list[str], log: str) -> list[int]:
    """The trainer's number and those of its children."""
    telling, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(telling)
        numbers = [_child(title, log) for title in children]
        os.write(told, json.dumps([os.getpid(), *numbers]).encode())
        _become(trainer, log)
    os.close(told)
    with os.fdopen(telling) as answer:  # until the trainer has become what it is called
        return json.load(answer)  # type: ignore[no-any-return]


def _child(title: str, log: str) -> int:
    """Give its number when it has become what it is called."""
    done, doing = os.pipe()
    watched, sentinel = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(watched)
        os.set_inheritable(sentinel, True)
        _become(title, log)
    os.close(doing)
    os.close(sentinel)
    os.set_inheritable(watched, True)
    os.read(done, 1)
    os.close(done)
    return pid


def _become(title: str, log: str) -> None:
    output = os.open(log, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv("/bin/sleep", [title, "600"])


if __name__ == "__main__":
    _serve()

"""Real processes with the names of a job's, whose trainer lives or was killed.

Each has code of the package that its name stands for. The first process is called tini, as in a container, and adopts
orphans. It executes commands line by line, and all others end with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import engines

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
        """Start a trainer that starts these; return its number and theirs.

        Each holds one end of a pipe to the trainer, as a child of multiprocessing does, and writes to `log`.
        """
        numbers = self._told("job", trainer, children, log)
        self.started.extend(numbers)
        return numbers[0], numbers[1:]

    def kill(self, pid: int) -> None:
        """Kill one of them and wait until its children are adopted."""
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
    with tempfile.TemporaryDirectory(prefix="vd-") as folder:
        process = subprocess.Popen(
            ["tini", str(_HERE), str(engines.code(Path(folder, "code"))), engines.ROOM],
            executable=sys.executable,
            env={
                "PYTHONHOME": sys.base_prefix,
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(_HERE.parents[1]),
            },
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
    """Return the trainer's number and those of its children."""
    hearing, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        watching, numbers = [], []
        for title in children:
            number, watched = _child(title, log)
            numbers.append(number)
            watching.append(watched)
        os.write(telling, json.dumps([os.getpid(), *numbers]).encode())
        _become(trainer, log, watching)
    os.close(telling)
    with os.fdopen(hearing) as answer:  # until the trainer has become what it is called
        return json.load(answer)  # type: ignore[no-any-return]


def _child(title: str, log: str) -> tuple[int, int]:
    """Return its number once it has its title, and the parent's end of a pipe to it."""
    done, doing = os.pipe()
    watched, sentinel = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(title, log, [sentinel])
    os.close(doing)
    os.close(sentinel)
    os.read(done, 1)
    os.close(done)
    return pid, watched


def _become(title: str, log: str, holds: list[int]) -> None:
    engines.load(Path(sys.argv[1]), *engines.package_of(title))
    engines.call(title)
    engines.only(holds, log)
    engines.wait()


if __name__ == "__main__":
    _serve()

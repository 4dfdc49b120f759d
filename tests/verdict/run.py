"""Run cases for real: build each, start its script with verl's own code, and record what happened.

    python tests/verdict/run.py CASE... [--folder DIR]
    python tests/verdict/run.py --all [--at-once 2]     all that were not run yet, for as long as it is left alone

It needs the environment in which verl runs without a GPU (`support/rehearsal_environment.py`); cases of a GPU machine cannot be run
again with it. `real.jsonl` gets a row and `DIR/logs` the log. Seconds are of the clock of a machine that may have had other work.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
from support import rehearsal_environment
from verdict import case as cases_of
from verdict import log
from verdict.build import Builder, environ
from verdict.case import REAL, Case, Real, record

_WHOSE = "VERL_DOCTOR_VERDICT_CASE"  # in the environment of all that a case starts
_LIMIT = 900.0  # seconds of the clock
_QUIET = 150.0  # seconds without a word and without work after which a job hangs
_IDLE = 0.1  # processors
_TURN = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description="run cases of the scoreboard for real")
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--all", action="store_true", help="all that were not run yet")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "verdict")
    options = parser.parse_args()
    runner = Runner(options.folder)
    if options.all:
        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(lambda _: runner.run_the_rest(), range(options.at_once)))
    known = cases_of.cases()
    for name in options.names:
        runner.run(known[name])


class Runner:
    """Runs cases below a folder with a short path: Ray's sockets lie there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = rehearsal_environment.python()
        self.builder = Builder(folder / "jobs", self.python)
        self.begun = set[str]()

    def run_the_rest(self) -> None:
        """Run what was not run yet, also what is added meanwhile, until there is a file `stop` in the folder."""
        while case := self._next():
            self.run(case)

    def _next(self) -> Case | None:
        with _TURN:
            done = cases_of.real().keys() | self.begun
            waiting = [
                case
                for case in cases_of.cases().values()
                if case.name not in done and case.base.device == "cpu"
            ]
            waiting.sort(key=lambda one: (one.late, zlib.crc32(one.name.encode()) if one.late else 0))
            if (self.folder / "stop").exists():
                return None
            if waiting:
                self.begun.add(waiting[0].name)
            return waiting[0] if waiting else None

    def run(self, case: Case) -> Real:
        with _TURN:
            script = self.builder.build(case)
        text, begun = "", time.monotonic()
        for words in (*case.before, ()):
            begun = time.monotonic()
            code, text = self.start(case, script, words)
            if code != 0:
                break
        seconds = round(time.monotonic() - begun)
        text = self._anonymous(text, case)
        found = replace(log.judged(case, code, log.plain(text)), seconds=seconds)
        with _TURN:
            record(REAL, found)
            logs = self.folder / "logs"
            logs.mkdir(exist_ok=True)
            with gzip.open(logs / f"{case.name}.log.gz", "wt") as file:
                file.write(text)
        print(f"{time.strftime('%H:%M:%S')} {found}", flush=True)
        return found

    def start(self, case: Case, script: Path, words: tuple[str, ...]) -> tuple[int | None, str]:
        """Exit status, None for a job that was ended, and all that it wrote."""
        with tempfile.TemporaryDirectory(prefix="v-", dir=self.folder, ignore_cleanup_errors=True) as private:
            path = script.parent / "log.txt"
            with path.open("w") as file:
                process = subprocess.Popen(
                    ["bash", script.name, *words],
                    cwd=script.parent,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environ(case, self.python, Path(private)) | {_WHOSE: case.name},
                    start_new_session=True,
                )
                code = _waited(process, path, case.name)
            _end(case.name)
            return code, path.read_text(errors="replace")

    def _anonymous(self, text: str, case: Case) -> str:
        """The log without the names of this machine and its folders."""
        names = {
            str(self.builder.folder / case.name): "/job",
            str(self.builder.folder): "/made",
            str(self.python.parent.parent): "/env",
            str(self.folder): "/private",
            str(Path.home()): "/home/user",
        }
        for name, other in names.items():
            text = text.replace(name, other)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "node1", text)
        return re.sub(
            r"\b(?!127\.0|0\.0)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b(?=:|'|\"|,| |$|\))", "192.0.2.2", text
        )


def _waited(process: subprocess.Popen[bytes], log_file: Path, name: str) -> int | None:
    """Wait for a job; None when it neither writes nor computes, or takes too long, and is given up."""
    begun = spoke = time.monotonic()
    size, work = 0, _work(name)
    while process.poll() is None:
        time.sleep(2)
        now = time.monotonic()
        if (length := log_file.stat().st_size) != size:
            size, spoke, work = length, now, _work(name)
        if now - spoke > _QUIET and (_work(name) - work) / (now - spoke) < _IDLE:
            return None
        if now - spoke > _QUIET:
            spoke, work = now, _work(name)
        if now - begun > _LIMIT:
            return None
    return process.returncode


def _kin(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_WHOSE) == name:
                found.append(process)
    return found


def _work(name: str) -> float:
    """Seconds of processors that this case's processes have used."""
    used = 0.0
    for process in _kin(name):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _end(name: str) -> None:
    """End what the case has left, each process by its number."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        for process in _kin(name):
            with contextlib.suppress(psutil.Error):
                process.send_signal(end)
        time.sleep(1.5 if _kin(name) else 0)


if __name__ == "__main__":
    main()

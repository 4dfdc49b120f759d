"""Timing whole processes: wall and CPU seconds, peak memory, and the time until the first line; where the table of what was measured is kept."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MARK = "<!-- measured -->"


@dataclass(frozen=True)
class Run:
    """One run of a command. Seconds; `peak_mb` is that of its largest single process, in MB of 10^6 bytes."""

    wall: float
    cpu: float
    peak_mb: float
    first_line: float
    code: int


def run(command: Sequence[str], environ: Mapping[str, str], cwd: str) -> Run:
    """Run a command once, reading all that it says on both streams."""
    started = time.perf_counter()
    process = subprocess.Popen(
        list(command),
        env=dict(environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    first = 0.0
    while True:
        select.select([process.stdout], [], [])
        said = os.read(process.stdout.fileno(), 1 << 16)
        if not said:
            break
        first = first or time.perf_counter() - started
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, first, process.returncode)


def median(runs: Sequence[Run], field: str) -> float:
    """The median of one figure over several runs."""
    return statistics.median(getattr(run, field) for run in runs)


def spread(runs: Sequence[Run], field: str) -> str:
    """The smallest and the largest, for the reader who wants to know how noisy the machine was."""
    values = [getattr(run, field) for run in runs]
    return f"{min(values):.2f}-{max(values):.2f}"


def put_table(path: Path, table: str) -> None:
    """Put a table into a page where the last one is: between two marks. Raises ValueError when the page has none."""
    parts = path.read_text("utf-8").split(_MARK)
    if len(parts) != 3:
        raise ValueError(f"{path} has no place for a table: two lines {_MARK}")
    path.write_text(f"{parts[0]}{_MARK}\n{table}\n{_MARK}{parts[2]}", "utf-8")
